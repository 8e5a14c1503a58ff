"""The simulator's error."""

from serve.errors import OfframpError


class InvalidSimulation(OfframpError):
    """An option or an input file of the simulator is wrong."""

    status = 422
    code = "invalid_simulation"
