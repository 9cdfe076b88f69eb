package sluice.lib.gpumodels_test

import data.fixtures
import data.sluice.lib.gpumodels

test_smallest_profile if {
	gpumodels.smallest_profile(fixtures.mig, 100, 0).name == "1g.5gb"
	gpumodels.smallest_profile(fixtures.mig, 126, 0).name == "3g.20gb"
	gpumodels.smallest_profile(fixtures.mig, 0, 20481).name == "7g.40gb"
	not gpumodels.smallest_profile(fixtures.mig, 0, 50000)
}

test_mixed_models_guarantee_smallest_and_charge_largest if {
	small := fixtures.profile("1g.10gb", 1, 10240, 0.125)
	large := fixtures.profile("1g.10gb", 1, 10240, 0.25)
	mixed := fixtures.pool("mixed", "MIG", [{"profiles": [small]}, {"profiles": [large]}])
	gpumodels.smallest_profile(mixed, 125, 0).milli == 250
	not gpumodels.smallest_profile(mixed, 250, 0)
}

test_replica if {
	gpumodels.replica(fixtures.time_sliced) == {"resource": "nvidia.com/gpu.shared", "milli": 250, "memoryMiB": 3724}
	not gpumodels.replica(fixtures.whole)
	not gpumodels.replica(fixtures.mig)
}

test_usable_memory if {
	gpumodels.usable_memory(fixtures.whole, {"memoryMiB": 15360}) == 14899
	gpumodels.usable_memory(object.union(fixtures.whole, {"driverReservePercent": 0}), {"memoryMiB": 15360}) == 15360
}
