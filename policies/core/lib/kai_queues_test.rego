package sluice.lib.kai_queues_test

import data.fixtures
import data.sluice.lib.kai_queues

shared := fixtures.pool("shared", "KAI", [])

test_krm_queue if {
	queue := kai_queues.krm_queue({"name": "thesis", "resources": {"cpu": "2"}}, "thesis.shared", shared)
	queue.name == "thesis.shared"
	queue.nodepool == "default"
	queue.resources.cpu == {"deserved": 2000, "limit": 2000, "overQuotaWeight": 1}
}

# The guarantee stays, with which the scheduler protects what runs.
test_closed_project_has_limit_zero if {
	kai_queues.resources({"closed": true}, shared).gpu == {"quota": 1, "limit": 0, "overQuotaWeight": 1}
	kai_queues.resources({"closed": false}, shared).gpu.limit == 2
}

test_mig_pool_counts_slices if {
	kai_queues.resources({}, fixtures.mig).gpu == {"quota": 7, "limit": 14, "overQuotaWeight": 1}
}

# KAI-Scheduler adds shares in binary fractions, in which three times 0.1 is more than 0.3.
test_limit_of_shares_has_a_margin if {
	thirds := object.union(shared, {"guaranteed": 0, "limit": 0.3})
	kai_queues.resources({}, thirds).gpu == {"quota": 0, "limit": 0.3001, "overQuotaWeight": 1}
	kai_queues.resources({}, object.union(thirds, {"sharing": "None"})).gpu.limit == 0.3
}

test_resources_set_all_nine_numbers if {
	owner := {"name": "thesis", "resources": {"cpu": "1500m", "memory": "2Gi"}}
	kai_queues.resources(owner, object.union(shared, {"guaranteed": 0.5, "limit": 1.5, "weight": 4})) == {
		"gpu": {"quota": 0.5001, "limit": 1.5001, "overQuotaWeight": 4},
		"cpu": {"quota": 1500, "limit": 1500, "overQuotaWeight": 1},
		"memory": {"quota": 2147, "limit": 2147, "overQuotaWeight": 1},
	}
	unlimited := {"quota": -1, "limit": -1, "overQuotaWeight": 1}
	kai_queues.resources({"name": "thesis", "resources": {}}, shared) == {
		"gpu": {"quota": 1, "limit": 2, "overQuotaWeight": 1},
		"cpu": unlimited, "memory": unlimited,
	}
}
