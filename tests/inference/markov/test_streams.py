"""Random streams of chains: they depend on the seed and the chain's number alone, and can be continued."""

import torch

from bnnzoo.inference.markov.streams import BLOCK, ChainStreams

CPU = torch.device("cpu")


def streams(seed: int = 0, first: int = 0, num: int = 4, width: int = 3) -> ChainStreams:
    return ChainStreams(seed, first, num, width, torch.float64, CPU)


def test_a_chain_has_the_same_numbers_in_every_batch() -> None:
    together, apart = streams(), streams(first=2, num=1)
    for _ in range(BLOCK + 3):
        torch.testing.assert_close(together.uniforms()[:, 2:3], apart.uniforms(), rtol=0, atol=0)
    torch.testing.assert_close(together.normals(5)[2:3], apart.normals(5), rtol=0, atol=0)


def test_chains_and_seeds_have_numbers_of_their_own() -> None:
    first = streams().normals(8)
    assert len(first.unique()) == first.numel()
    assert not bool((streams(seed=1).normals(8) == first).any())


def test_chains_that_take_no_normals_do_not_move_on() -> None:
    one, other = streams(), streams()
    some = one.normals(5, chains=[1, 3])
    assert bool((some[[0, 2]] == 0).all()) and bool((some[[1, 3]] != 0).all())
    assert torch.equal(one.normals(5)[[0, 2]], other.normals(5)[[0, 2]])


def test_a_restored_stream_continues_with_the_very_next_number() -> None:
    one, other = streams(), streams(seed=9)
    for _ in range(BLOCK - 2):
        one.uniforms()
    one.normals(7, chains=[0, 1])
    other.restore(one.state())
    for _ in range(5):
        assert torch.equal(one.uniforms(), other.uniforms())
    assert torch.equal(one.normals(7), other.normals(7)) and one.num_rows == other.num_rows


def test_the_global_stream_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    streams().uniforms()
    streams().normals(3)
    assert torch.equal(torch.get_rng_state(), before)
