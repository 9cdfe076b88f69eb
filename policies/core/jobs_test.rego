package core.jobs_test

import data.core.jobs as policy
import data.fixtures

job(spec) := {"spec": object.union({"template": {"spec": {"restartPolicy": "Never"}}}, spec)}

ignore := {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}

fail(operator, codes) := {"action": "FailJob", "onExitCodes": {"operator": operator, "values": codes}}

asked := fixtures.asked(fixtures.gpus(1), [fixtures.whole])

own(rules) := job({"podFailurePolicy": {"rules": rules}})

test_a_preempted_pod_is_no_failure if {
	policy.defaults.spec == {"podFailurePolicy": {"rules": [ignore]}, "podReplacementPolicy": "Failed"} with input as asked
		with input.object as job({})
	count(policy.warn) == 0 with input as asked with input.object as job({})
}

test_pods_that_are_restarted_in_place_are_left if {
	left := job({"template": {"spec": {"restartPolicy": "OnFailure"}}})
	not policy.defaults.spec.podFailurePolicy with input as asked with input.object as left
	not policy.defaults.spec.podReplacementPolicy with input as asked with input.object as left
	count(policy.warn) == 0 with input as asked with input.object as left
}

test_jobs_without_gpus_are_left if {
	cpu := fixtures.asked(fixtures.cpu, [fixtures.whole])
	not policy.defaults.spec.podFailurePolicy with input as cpu with input.object as job({})
	count(policy.warn) == 0 with input as cpu with input.object as own([fail("In", [137])])
}

test_own_rules_are_left if {
	every rules in [[], [ignore], [fail("In", [1])]] {
		not policy.defaults.spec.podFailurePolicy with input as asked with input.object as own(rules)
		not policy.defaults.spec.podReplacementPolicy with input as asked with input.object as own(rules)
	}
}

test_own_rules_that_let_a_preempted_pod_be if {
	every rules in [
		[ignore],
		[fail("In", [1]), ignore],
		[fail("NotIn", [0, 137, 143]), ignore],
		[ignore, fail("NotIn", [0])],
		[{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}],
	] {
		count(policy.warn) == 0 with input as asked with input.object as own(rules)
	}
}

test_own_rules_that_count_it_are_warned_of if {
	every rules in [
		[],
		[fail("In", [1])],
		[fail("In", [137, 139]), ignore],
		[fail("NotIn", [42, 143]), ignore],
		[{"action": "Count", "onPodConditions": ignore.onPodConditions}, ignore],
		[{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}],
		[{"action": "Ignore", "onPodConditions": [{"type": "Other", "status": "True"}]}],
	] {
		count(policy.warn) == 1 with input as asked with input.object as own(rules)
	}
}
