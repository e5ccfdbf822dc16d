"""All limits of the server, one module for each capability, with units last in their names.

Use them as `limits.COMMIT_WRITES_MAX`. Applications define their limits separately.
"""

from onceward.limits.engine import *
from onceward.limits.locks import *
from onceward.limits.rooms import *
from onceward.limits.schedule import *
from onceward.limits.sql import *
from onceward.limits.store import *
from onceward.limits.tables import *
from onceward.limits.web import *
from onceward.limits.webhooks import *
