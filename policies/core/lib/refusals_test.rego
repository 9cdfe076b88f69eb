package sluice.lib.refusals_test

import data.fixtures
import data.sluice.lib.refusals

messages := {complaint.msg | some complaint in refusals.complaints}

test_refuses_what_the_pool_does_not_give if {
	messages == {"the pod requests 0.3 of a GPU; node pool whole offers whole GPUs only"} with input as fixtures.asked(fixtures.share(0.3), [fixtures.whole])
	count(messages) == 1 with input as fixtures.asked(fixtures.slices(1, "2g.10gb"), [fixtures.cut])
	count(messages) == 1 with input as fixtures.asked(fixtures.gpus(1), [fixtures.taken])
	count(messages) == 0 with input as fixtures.asked(fixtures.gpus(1), [fixtures.whole])
	count(messages) == 0 with input as fixtures.asked(fixtures.cpu, [])
}

test_pools_that_are_not_the_projects if {
	wish := object.union(fixtures.gpus(1), {"nodePools": ["other"]})
	messages == {"node pool other is not one of project thesis; it may use whole and cut"} with input as fixtures.asked(wish, [fixtures.whole, fixtures.cut])
}

test_no_pools if {
	messages == {"project thesis has no node pool, and so no GPUs"} with input as fixtures.asked(fixtures.gpus(1), [])
}

test_pools_that_take_no_pods if {
	broken := object.union(fixtures.whole, {"unsupported": "it has no nodes"})
	messages == {"node pool whole takes no pods: it has no nodes"} with input as fixtures.asked(fixtures.gpus(1), [broken])
}

test_names_what_can_give_it if {
	asked := fixtures.asked(fixtures.share(0.5), [fixtures.whole, fixtures.cut, fixtures.taken])
	refusals.msg == "the pod requests 0.5 of a GPU; node pool whole offers whole GPUs only" with input as asked
	refusals.fix == "cut can give it: name it in the annotation sluice.dev/node-pools" with input as asked
}

test_says_what_to_ask_for_instead if {
	asked := fixtures.asked(fixtures.share(0.5), [fixtures.taken])
	refusals.msg == "the pod requests 0.5 of a GPU; node pool taken offers one replica per pod, which is 0.25 of a GPU" with input as asked
	startswith(refusals.fix, "request at most one replica") with input as asked
}

test_lists_the_slices if {
	refusals.offer == "the MIG slices 1g.5gb, 1g.5gb+me, 3g.20gb and 7g.40gb" with input as fixtures.asked(fixtures.slices(1, "2g.10gb"), [fixtures.cut])
}

test_every_sharing_has_an_answer if {
	every sharing in ["None", "MIG", "MPS", "TimeSlicing", "KAI", "HAMi"] {
		refusals.msg with input as fixtures.asked(fixtures.share(0.5), [fixtures.pool("bare", sharing, [])])
		refusals.fix with input as fixtures.asked(fixtures.share(0.5), [fixtures.pool("bare", sharing, [])])
	}
}
