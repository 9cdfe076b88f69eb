package core.jobs_test

import data.core.jobs as policy
import data.fixtures

job(spec) := {"spec": object.union({"template": {"spec": {"restartPolicy": "Never"}}}, spec)}

ignore := {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}

fail(operator, codes) := {"action": "FailJob", "onExitCodes": {"operator": operator, "values": codes}}

pod_input := fixtures.input_for(fixtures.gpus(1), [fixtures.whole])

with_rules(rules) := job({"podFailurePolicy": {"rules": rules}})

test_default_rule_ignores_preemption if {
	policy.defaults.spec == {"podFailurePolicy": {"rules": [ignore]}, "podReplacementPolicy": "Failed"} with input as pod_input
		with input.object as job({})
	count(policy.warn) == 0 with input as pod_input with input.object as job({})
}

test_restart_on_failure_is_unchanged if {
	unchanged := job({"template": {"spec": {"restartPolicy": "OnFailure"}}})
	not policy.defaults.spec.podFailurePolicy with input as pod_input with input.object as unchanged
	not policy.defaults.spec.podReplacementPolicy with input as pod_input with input.object as unchanged
	count(policy.warn) == 0 with input as pod_input with input.object as unchanged
}

test_jobs_without_gpus_are_unchanged if {
	cpu := fixtures.input_for(fixtures.cpu, [fixtures.whole])
	not policy.defaults.spec.podFailurePolicy with input as cpu with input.object as job({})
	count(policy.warn) == 0 with input as cpu with input.object as with_rules([fail("In", [137])])
}

test_existing_rules_are_unchanged if {
	every rules in [[], [ignore], [fail("In", [1])]] {
		not policy.defaults.spec.podFailurePolicy with input as pod_input with input.object as with_rules(rules)
		not policy.defaults.spec.podReplacementPolicy with input as pod_input with input.object as with_rules(rules)
	}
}

test_no_warning_for_rules_that_ignore_preemption if {
	every rules in [
		[ignore],
		[fail("In", [1]), ignore],
		[fail("NotIn", [0, 137, 143]), ignore],
		[ignore, fail("NotIn", [0])],
		[{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}],
	] {
		count(policy.warn) == 0 with input as pod_input with input.object as with_rules(rules)
	}
}

test_warns_of_rules_that_count_preemption if {
	every rules in [
		[],
		[fail("In", [1])],
		[fail("In", [137, 139]), ignore],
		[fail("NotIn", [42, 143]), ignore],
		[{"action": "Count", "onPodConditions": ignore.onPodConditions}, ignore],
		[{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}],
		[{"action": "Ignore", "onPodConditions": [{"type": "Other", "status": "True"}]}],
	] {
		count(policy.warn) == 1 with input as pod_input with input.object as with_rules(rules)
	}
}

# KAI-Scheduler 0.17.0 sets DisruptionTarget only with --update-pod-eviction-condition.
test_warns_of_backoff_limit_zero_on_kai if {
	unmarked := object.union(fixtures.whole, {"scheduler": "kai", "settings": {"updatePodEvictionCondition": "false"}})
	marked := object.union(unmarked, {"settings": {"updatePodEvictionCondition": "true"}})
	warned_fields(fixtures.gpus(1), unmarked, {"backoffLimit": 0}) == {"spec.backoffLimit"}
	every harmless in [{"backoffLimit": 1}, {}] {
		warned_fields(fixtures.gpus(1), unmarked, harmless) == set()
	}
	every pool in [marked, fixtures.whole] {
		warned_fields(fixtures.gpus(1), pool, {"backoffLimit": 0}) == set()
	}
	every workload in [fixtures.cpu, object.union(fixtures.gpus(1), {"type": "interactive"})] {
		warned_fields(workload, unmarked, {"backoffLimit": 0}) == set()
	}
}

warned_fields(workload, pool, spec) := {warning.field |
	some warning in policy.warn with input as fixtures.input_for(workload, [pool]) with input.object as job(spec)
}
