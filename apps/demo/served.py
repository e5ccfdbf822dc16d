"""The application of the demonstration's server, with settings from its environment."""

import os

from apps.demo.settings import load
from apps.demo.systems import make_app

app = make_app(load(os.environ))
