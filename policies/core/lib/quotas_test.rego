package sluice.lib.quotas_test

import data.fixtures
import data.sluice.lib.quotas

test_milli_is_exact if {
	quotas.milli(0.3) == 300
	quotas.milli(0.001) == 1
	quotas.milli(99999) == 99999000
}

resource_quotas := {quota.metadata.name: quota |
	some quota in quotas.limit_and_guarantee("sluice-a", "sluice.dev/gpu-milli", 1.5, 0.5) with input.project as fixtures.project
}

test_limit_and_guarantee if {
	{name: quota.spec.hard | some name, quota in resource_quotas} == {
		"sluice-a": {"requests.sluice.dev/gpu-milli": "1500"},
		"sluice-a.guaranteed": {"requests.sluice.dev/gpu-milli": "500"},
	}
	{quota.metadata.namespace | some quota in resource_quotas} == {"thesis"}
}

test_guarantee_selects_non_preemptible_pods if {
	not resource_quotas["sluice-a"].spec.scopeSelector
	resource_quotas["sluice-a.guaranteed"].spec.scopeSelector.matchExpressions == [{
		"scopeName": "PriorityClass", "operator": "In", "values": ["sluice-interactive", "sluice-inference"],
	}]
}
