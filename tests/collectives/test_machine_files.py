

@pytest.mark.parametrize("gpu", ["h20", "H20-SXM", "h800", "mi300x"])
def test_a_gpu_that_is_known_and_not_modelled_says_the_nearest_and_what_to_set(gpu: str) -> None:
    """``h20`` is no ``h200``; what is to be typed is a machine that is."""
    with pytest.raises(BadInputError, match="is known and not modelled") as refused:
        load_machine(gpu)
    name, *values = refused.value.next_step.partition("--machine ")[2].split(" --set ")
    changed = load_machine(name).with_overrides(dict(value.split("=", 1) for value in values))
    assert len(changed.overrides) == len(values) > 0
