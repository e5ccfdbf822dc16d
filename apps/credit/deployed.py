"""Credit intake with settings from the environment, for servers and workers.

onceward serve --app apps.credit.deployed:app
onceward work apps.credit.deployed:app
"""

import os

from apps.credit.credit import Credit
from apps.credit.intake import Intake
from apps.credit.settings import load

credit = Credit(load(os.environ))
intake = Intake(credit)
app = credit.app
