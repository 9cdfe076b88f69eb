package sluice.lib.kai_queues_test

import data.fixtures
import data.sluice.lib.kai_queues

shared := fixtures.pool("shared", "KAI", [])

test_the_same_for_kai_resource_management if {
	declared := kai_queues.declared({"name": "thesis", "resources": {"cpu": "2"}}, "thesis.shared", shared)
	declared.name == "thesis.shared"
	declared.nodepool == "default"
	declared.resources.cpu == {"deserved": 2000, "limit": 2000, "overQuotaWeight": 1}
}

test_mig_is_counted_in_slices if {
	kai_queues.amounts({}, fixtures.cut).gpu == {"quota": 7, "limit": 14, "overQuotaWeight": 1}
}

test_all_nine_numbers if {
	owner := {"name": "thesis", "resources": {"cpu": "1500m", "memory": "2Gi"}}
	kai_queues.amounts(owner, object.union(shared, {"guaranteed": 0.5, "limit": 1.5, "weight": 4})) == {
		"gpu": {"quota": 0.5, "limit": 1.5, "overQuotaWeight": 4},
		"cpu": {"quota": 1500, "limit": 1500, "overQuotaWeight": 1},
		"memory": {"quota": 2147, "limit": 2147, "overQuotaWeight": 1},
	}
	unlimited := {"quota": -1, "limit": -1, "overQuotaWeight": 1}
	kai_queues.amounts({"name": "thesis", "resources": {}}, shared) == {
		"gpu": {"quota": 1, "limit": 2, "overQuotaWeight": 1},
		"cpu": unlimited, "memory": unlimited,
	}
}
