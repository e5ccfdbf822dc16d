"""The error codes of credit intake keep the meaning that they were published with."""

from typing import Any

import pytest

from apps.credit.errors import BAD_ENVELOPE, WRONG_ORGANISATION
from onceward import BadInput
from onceward.client.transport import problem as read_problem
from onceward.errors import TABLE
from onceward.web import problem

PUBLISHED = {
    BAD_ENVELOPE: ("credit_bad_envelope", 400),
    WRONG_ORGANISATION: ("credit_wrong_organisation", 403),
}


@pytest.mark.parametrize("code", PUBLISHED)
def test_a_code_keeps_its_name_and_its_status(code: str) -> None:
    assert (code, BadInput("", code=code).kind.status) == PUBLISHED[code]
    assert code not in TABLE, "it is a code of the application"


@pytest.mark.parametrize("code", PUBLISHED)
def test_a_client_that_knows_the_code_raises_the_same_error(code: str) -> None:
    answer = problem(BadInput("not accepted", code=code, line=7))
    error: Any = read_problem(answer.status, answer.body)
    assert type(error) is BadInput
    assert (error.code, error.message, error.details) == (code, "not accepted", {"line": 7})
