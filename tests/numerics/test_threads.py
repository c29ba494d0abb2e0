from threadpoolctl import threadpool_info, threadpool_limits

from pgbb._numerics.threads import one_blas_thread


def threads():
    return {
        library["filepath"]: library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def test_small_factorisations_run_in_one_thread_and_the_setting_comes_back():
    seen = []
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_blas_thread():
            seen.append(threads())
        one_blas_thread()(lambda: seen.append(threads()))()
        assert threads() == before
    assert before and all(set(found.values()) == {1} for found in seen)
