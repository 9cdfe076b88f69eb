package sluice.lib.quotas_test

import data.fixtures
import data.sluice.lib.quotas

test_milli_is_exact if {
	quotas.milli(0.3) == 300
	quotas.milli(0.001) == 1
	quotas.milli(99999) == 99999000
}

test_limit_and_guarantee if {
	quotas.gpu_limits(fixtures.whole, 1.5, 0.5) == {
		"requests.sluice.dev/gpu-milli.whole": "1500",
		"requests.sluice.dev/guaranteed-milli.whole": "500",
	}
}

test_quota_is_of_project if {
	quota := quotas.resource_quota({"pods": "5"}) with input.project as fixtures.project
	quota.metadata == {"name": "sluice", "namespace": "thesis"}
	quota.spec == {"hard": {"pods": "5"}}
}

test_charges if {
	every name in ["sluice.dev/gpu-milli", "sluice.dev/gpu-milli.dgx", "sluice.dev/guaranteed-milli.dgx"] { quotas.is_charge(name) }
	every name in ["nvidia.com/gpu", "cpu"] { not quotas.is_charge(name) }
}
