"""The JSON of every answer that is not 2xx."""

from pydantic import ConfigDict

from serve.api.schemas.base import ResponseModel


class Problem(ResponseModel):
    """What went wrong."""

    code: str
    message: str


class ErrorBody(ResponseModel):
    """The body of every answer that is not 2xx."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "error": {
                        "code": "invalid_request",
                        "message": "exit.threshold: must be greater than or equal to 0, not -1",
                    }
                }
            ]
        }
    )

    error: Problem


class ErrorText(ResponseModel):
    """An error of several dialects."""

    error: str
