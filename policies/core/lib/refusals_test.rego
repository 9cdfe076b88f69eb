package sluice.lib.refusals_test

import data.fixtures
import data.sluice.lib.refusals

test_names_what_can_give_it if {
	asked := fixtures.asked(fixtures.share(0.5), [fixtures.whole, fixtures.cut, fixtures.taken])
	refusals.msg == "the pod asks for 0.5 of a GPU; node pool whole gives whole GPUs only" with input as asked
	refusals.fix == "cut can give it: name it in the annotation sluice.dev/node-pools" with input as asked
}

test_says_what_to_ask_for_instead if {
	asked := fixtures.asked(fixtures.share(0.5), [fixtures.taken])
	refusals.msg == "the pod asks for 0.5 of a GPU; node pool taken gives a pod one replica, which is 0.25 of a GPU" with input as asked
	startswith(refusals.fix, "ask for no more than a replica") with input as asked
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
