"""An application for a server that is killed: what it had at hand is given up soon."""

from onceward import limits
from onceward.app import App

limits.OUTWARD_SLACK_S = 1.0
app = App("sqlite:///server.db")
