package core.gpu_test

import data.core.gpu as policy
import data.fixtures

limits := policy.overrides.spec.containers[0].resources.limits

messages := {complaint.msg | some complaint in policy.deny}

test_charges_whole_gpus if {
	limits == {"sluice.dev/gpu-milli.whole": "2000"} with input as fixtures.asked(fixtures.gpus(2), [fixtures.whole])
}

test_a_share_becomes_a_slice if {
	asked := fixtures.asked(fixtures.share(0.3), [fixtures.cut])
	limits == {"nvidia.com/mig-3g.20gb": "1", "sluice.dev/gpu-milli.cut": "500"} with input as asked
	policy.warn == {"0.3 of a GPU became a slice 3g.20gb in node pool cut; the pod counts as 0.5 of a GPU"} with input as asked
}

test_no_warning_where_it_is_what_was_asked if {
	count(policy.warn) == 0 with input as fixtures.asked(fixtures.share(0.5), [fixtures.cut])
	count(policy.warn) == 0 with input as fixtures.asked(fixtures.gpus(1), [fixtures.cut])
}

test_takes_out_other_copies_of_the_charge if {
	asked := fixtures.asked(fixtures.cpu, [fixtures.whole])
	policy.remove == {["spec", "containers", {"name": "main"}, "resources", "limits", "sluice.dev/gpu-milli.other"]} with input as asked
		with input.object as fixtures.pod({"sluice.dev/gpu-milli.other": 1, "cpu": 1})
	not policy.overrides.spec.containers with input as asked
}

test_refuses_what_the_pool_does_not_give if {
	messages == {"the pod asks for 0.3 of a GPU; node pool whole gives whole GPUs only"} with input as fixtures.asked(fixtures.share(0.3), [fixtures.whole])
	count(messages) == 1 with input as fixtures.asked(fixtures.slices(1, "2g.10gb"), [fixtures.cut])
	count(messages) == 1 with input as fixtures.asked(fixtures.gpus(1), [fixtures.taken])
	count(messages) == 0 with input as fixtures.asked(fixtures.gpus(1), [fixtures.whole])
}

test_refuses_to_guess_for_several_containers if {
	two := {"spec": {"containers": [
		{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}},
		{"name": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}},
	]}}
	some complaint in policy.deny with input as fixtures.asked(fixtures.gpus(2), [fixtures.cut]) with input.object as two
	complaint.fix == "ask for nvidia.com/mig-7g.40gb in each of them"
}

test_refuses_daemon_sets_and_claims if {
	daemon := object.union(fixtures.gpus(1), {"owner": {"group": "apps", "kind": "DaemonSet"}})
	count(messages) == 1 with input as fixtures.asked(daemon, [fixtures.whole])
	claim := object.union(fixtures.cpu, {"claims": [{"name": "gpu"}]})
	count(messages) == 1 with input as fixtures.asked(claim, [fixtures.whole])
	count(messages) == 0 with input as fixtures.asked(claim, [fixtures.whole]) with input.parameters.allowClaims as true
	count(messages) == 1 with input as fixtures.asked(object.union(fixtures.cpu, {"deviceClasses": {"gpu": 1}}), [])
}
