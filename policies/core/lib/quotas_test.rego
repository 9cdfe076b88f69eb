package sluice.lib.quotas_test

import data.fixtures
import data.sluice.lib.quotas

both := {quota.metadata.name: quota |
	some quota in quotas.both("sluice-a", "sluice.dev/gpu-milli", 1.5, 0.5) with input.project as fixtures.project
}

test_what_is_counted if {
	{name: quota.spec.hard | some name, quota in both} == {
		"sluice-a": {"requests.sluice.dev/gpu-milli": "1500"},
		"sluice-a.guaranteed": {"requests.sluice.dev/gpu-milli": "500"},
	}
	{quota.metadata.namespace | some quota in both} == {"thesis"}
}

test_the_guarantee_is_for_what_cannot_be_preempted if {
	not both["sluice-a"].spec.scopeSelector
	both["sluice-a.guaranteed"].spec.scopeSelector.matchExpressions == [{
		"scopeName": "PriorityClass", "operator": "In", "values": ["sluice-interactive", "sluice-inference"],
	}]
}
