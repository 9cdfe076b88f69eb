package core.gpu_test

import data.core.gpu as policy
import data.fixtures

limits := policy.overrides.spec.containers[0].resources.limits

messages := {complaint.msg | some complaint in policy.deny}

test_leaves_whole_gpus if {
	not limits with input as fixtures.asked(fixtures.gpus(2), [fixtures.whole])
}

test_a_share_becomes_a_slice if {
	asked := fixtures.asked(fixtures.share(0.3), [fixtures.cut])
	limits == {"nvidia.com/mig-3g.20gb": "1"} with input as asked
	policy.warn == {"0.3 of a GPU became a slice 3g.20gb in node pool cut; the pod counts as 0.5 of a GPU"} with input as asked
}

test_no_warning_where_it_is_what_was_asked if {
	count(policy.warn) == 0 with input as fixtures.asked(fixtures.share(0.5), [fixtures.cut])
	count(policy.warn) == 0 with input as fixtures.asked(fixtures.gpus(1), [fixtures.cut])
}

test_several_become_several if {
	asked := fixtures.asked(object.union(fixtures.share(0.1), {"devices": 2}), [fixtures.cut])
	limits == {"nvidia.com/mig-1g.5gb": "2"} with input as asked
	policy.warn == {"2 times 0.1 of a GPU became 2 slices 1g.5gb in node pool cut; the pod counts as 0.25 of a GPU"} with input as asked
}

test_takes_out_what_would_be_a_second_kind if {
	wish := object.union(fixtures.memory(20000), {"resources": {"nvidia.com/gpu": 1}})
	{path[5] | some path in policy.remove} == {"nvidia.com/gpu", "nvidia.com/gpumem"} with input as fixtures.asked(wish, [fixtures.cut])
		with input.object as fixtures.pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 20000, "cpu": 1})
}

test_refuses_to_guess_for_several_containers if {
	two := {"spec": {"containers": [
		{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}},
		{"name": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}},
	]}}
	some complaint in policy.deny with input as fixtures.asked(fixtures.gpus(2), [fixtures.cut]) with input.object as two
	complaint.fix == "request nvidia.com/mig-7g.40gb in each of them"
}

test_refuses_daemon_sets if {
	daemon := object.union(fixtures.gpus(1), {"owner": {"group": "apps", "kind": "DaemonSet"}})
	count(messages) == 1 with input as fixtures.asked(daemon, [fixtures.whole])
}
