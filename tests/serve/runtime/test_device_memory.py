import pytest

from serve.runtime.device_memory import Block, Buffer, HostMemory


class FullMemory(HostMemory):
    """Has room for one block of so many bytes or less, and notes what is given back."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.freed: list[Block] = []

    def allocate(self, num_bytes: int) -> Block:
        if num_bytes > self.most_bytes:
            raise MemoryError("out of memory")
        return super().allocate(num_bytes)

    def free(self, block: Block) -> None:
        self.freed.append(block)


def test_buffer_goes_on_in_its_old_block_when_no_larger_one_is_left() -> None:
    memory = FullMemory(1 << 16)
    buffer = Buffer(memory)
    address = buffer.address
    with pytest.raises(MemoryError):
        buffer.reserve(1 << 17)
    assert not memory.freed
    assert buffer.address == address
    buffer.reserve(4)[:4] = 1, 2, 3, 4
    buffer.upload(4)
    buffer.download(4)
    assert buffer.read(4).tolist() == [1, 2, 3, 4]
    memory.most_bytes = 1 << 20
    buffer.reserve(1 << 17)
    assert len(memory.freed) == 1
    assert buffer.address != address
    del buffer
    assert len(memory.freed) == 2, "a model that is unloaded leaves nothing behind"
