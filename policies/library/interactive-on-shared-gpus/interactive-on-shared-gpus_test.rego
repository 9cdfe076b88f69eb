package interactive_on_shared_gpus_test

import data.interactive_on_shared_gpus

shared := [{"sharing": "None", "products": []}, {
	"sharing": "MIG",
	"products": [{"profiles": [{"name": "3g.20gb", "quotaCharge": 500}, {"name": "7g.40gb", "quotaCharge": 1000}]}],
}]

request(fields) := object.union({"type": "interactive", "form": "Share", "devices": 1, "share": 0, "migProfile": ""}, fields)

denials(fields) := found if {
	found := interactive_on_shared_gpus.deny with input.workload as request(fields)
		with input.nodePools as shared
		with input.parameters as {"largestShare": 0.5}
}

test_denied if {
	every fields in [{"form": "Whole"}, {"share": 0.75}, {"share": 0.1, "devices": 2}, {"form": "MIG", "migProfile": "7g.40gb"}] {
		count(denials(fields)) == 1
	}
}

test_allowed if {
	every fields in [{"share": 0.5}, {"form": "MIG", "migProfile": "3g.20gb"}, {"form": "None", "devices": 0}, {"form": "Whole", "type": "train"}] {
		count(denials(fields)) == 0
	}
}

test_without_shared_pools if {
	count(interactive_on_shared_gpus.deny) == 0 with input.workload as request({"form": "Whole"})
		with input.nodePools as [{"sharing": "None", "products": []}]
		with input.parameters as {"largestShare": 0.5}
}
