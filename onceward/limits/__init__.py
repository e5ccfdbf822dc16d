"""Every cap, part by part on a screen of its own, units last in the names; applications have their
own. All of them are here: `limits.COMMIT_WRITES_MAX`."""

from onceward.limits.engine import *
from onceward.limits.locks import *
from onceward.limits.rooms import *
from onceward.limits.schedule import *
from onceward.limits.store import *
from onceward.limits.tables import *
from onceward.limits.web import *
from onceward.limits.webhooks import *
