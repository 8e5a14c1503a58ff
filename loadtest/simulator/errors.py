"""What is wrong with what the simulator was asked to do."""

from serve.errors import OfframpError


class InvalidSimulation(OfframpError):
    """An option or an input file of the simulator that cannot be followed."""

    status = 422
    code = "invalid_simulation"
