"""HTTP functions for tables, shared with WebSocket connections."""

from typing import Any

from onceward.api import OPERATIONS
from onceward.api.tables import TablePage, TablesQuery, WaitlistPage, WaitlistQuery
from onceward.tables.operations import FUNCTIONS, Function
from onceward.web.calls import Call, binder
from onceward.web.routes import Route

ROUTES: list[Route] = []
_answers = binder(ROUTES)


def _over_http(function: Function) -> Function:
    async def answer(call: Call, *arguments: Any) -> Any:
        for asked in arguments:
            if isinstance(asked, TablesQuery | WaitlistQuery):
                asked.after = call.unseal("after", asked.after)
        found = await function(call.app.tables, call.caller, *arguments)
        if isinstance(found, TablePage | WaitlistPage):
            found.next = call.seal(found.next)
        return found

    return answer


for _name, _function in FUNCTIONS.items():
    _answers(OPERATIONS[_name])(_over_http(_function))
