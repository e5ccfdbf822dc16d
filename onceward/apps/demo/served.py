"""The application of the demonstration's server, by the settings in its environment."""

import os

from onceward.apps.demo.settings import load
from onceward.apps.demo.systems import make_app

app = make_app(load(os.environ))
