"""A small model in front of a large one: its exits are further places where texts may leave."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, PositiveFloat, model_validator

from serve.validation import Frozen, RequestModel

if TYPE_CHECKING:
    from serve.rules.rule import Rule
    from serve.rules.traits import Traits


_Layer = Annotated[int, Field(gt=0, le=1000)]


class SmallRule(RequestModel):
    """When texts leave in the small model: rule `confidence`, with these fields of it."""

    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Leave where the top probability reaches it."
    )
    min_layer: _Layer | None = Field(default=None, description="No exit before this layer.")
    max_layer: _Layer | None = Field(
        default=None, description="What has not left here goes on to the large model."
    )

    def last(self, exits: tuple[int, ...]) -> int:
        """Return the index of the exit after which texts go on, of a small model's exits."""
        return sum(layer <= (self.max_layer or layer) for layer in exits) - 1


# Of a small model's bundle, inside the large one's.
FOLDER: Final = "small-{}"


class SmallModel(Frozen):
    """What a large model's bundle says of the small model in front of it.

    Attributes:
        name: of the bundle that it was.
        sha256: of that bundle's manifest.
        exits: its exit layers, ascending.
        temperatures: one per exit, at which its confidence is read.
        layer_cost: what one of its layers takes, in layers of the large model, as measured where
            it was added.
    """

    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    exits: tuple[_Layer, ...] = Field(min_length=1, max_length=1000)
    temperatures: tuple[PositiveFloat, ...]
    layer_cost: Annotated[float, Field(gt=0, le=100)]

    def traits(self, large: "Traits") -> "Traits":
        """Return the small model as rules see it, in front of a large one."""
        return replace(large.bare, exits=self.exits, score_temperatures=None, max_tokens=0)

    @property
    def folder(self) -> str:
        """Where its bundle lies, inside the large model's."""
        return FOLDER.format(self.sha256[:12])

    @property
    def manifest(self) -> str:
        """The path of its manifest, inside the large model's bundle."""
        return f"{self.folder}/manifest.json"

    @model_validator(mode="after")
    def _check(self) -> "SmallModel":
        if len(self.temperatures) != len(self.exits):
            raise ValueError("small: one temperature for each of its exits")
        return self


def places(exits: tuple[int, ...], has_table: bool, small: SmallModel | None) -> tuple[int, ...]:
    """Return the layer of each place where texts may leave: the table, the small model, the exits.

    All before the first layer of the large model are at layer 0.
    """
    return (*(0,) * has_table, *(0,) * (len(small.exits) if small else 0), *exits)


def places_in_words(layers: tuple[int, ...], small: SmallModel | None) -> str:
    """Return places for people: `0, 1, 2`, each layer once."""
    words = ", ".join(map(str, dict.fromkeys(layers)))
    return f"{words} (0 in {small.name})" if small else words


def layers_taken(
    exits: tuple[int, ...], has_table: bool, small: SmallModel | None, rule: "Rule"
) -> tuple[float, ...]:
    """Return what a rule's texts take that leave at each of `places`, in the large model's layers.

    Those of the small model are counted at what they cost; the table costs nothing.
    """
    if small is None:
        return places(exits, has_table, small)
    own = [small.layer_cost * layer for layer in small.exits]
    before = own[rule.small.last(small.exits)] if rule.small else 0.0
    return (*(0.0,) * has_table, *own, *(before + layer for layer in exits))
