"""Credit intake by the settings in the environment, to be served and worked.

onceward serve --app onceward.apps.credit.deployed:app
onceward work onceward.apps.credit.deployed:app
"""

import os

from onceward.apps.credit.credit import Credit
from onceward.apps.credit.intake import Intake
from onceward.apps.credit.settings import load

credit = Credit(load(os.environ))
intake = Intake(credit)
app = credit.app
