"""What the rules and the runtime say of TensorFlow and Keras is so here."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
import tensorflow as tf

FIT_OPTIONS = ("workers", "use_multiprocessing", "max_queue_size")


def test_tf32_is_on_and_threads_are_left_to_tensorflow() -> None:
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    assert tf.config.threading.get_inter_op_parallelism_threads() == 0


@pytest.mark.parametrize("option", FIT_OPTIONS)
def test_fit_has_no_workers(option: str) -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.zeros((4, 2)), np.zeros((4, 1))
    with pytest.raises(TypeError, match=option):
        model.fit(*data, verbose=0, **{option: 1})


def test_a_parallel_map_keeps_the_order() -> None:
    numbers = tf.data.Dataset.range(200)
    serial = list(numbers.map(lambda x: x * x).as_numpy_iterator())
    parallel = numbers.map(lambda x: x * x, num_parallel_calls=tf.data.AUTOTUNE)
    assert list(parallel.as_numpy_iterator()) == serial


def test_a_parallel_interleave_keeps_the_order_of_a_given_cycle() -> None:
    def read(x: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(7).map(lambda y: x * 10 + y)

    numbers = tf.data.Dataset.range(9)
    serial = numbers.interleave(read, cycle_length=4, block_length=2)
    parallel = numbers.interleave(
        read, cycle_length=4, block_length=2, num_parallel_calls=tf.data.AUTOTUNE
    )
    wanted = list(serial.as_numpy_iterator())
    assert list(parallel.as_numpy_iterator()) == wanted


@pytest.mark.parametrize(
    "gone", ["fit_generator", "predict_generator", "evaluate_generator"]
)
def test_generators_methods_are_gone(gone: str) -> None:
    assert not hasattr(keras.Sequential(), gone)


def test_other_names_are_gone() -> None:
    assert not hasattr(keras.utils, "multi_gpu_model")
    assert not hasattr(tf.keras.mixed_precision, "experimental")
    with pytest.raises((TypeError, ValueError)):
        keras.optimizers.Adam(lr=0.1)
