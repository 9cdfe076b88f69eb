# What could never fit into the project's quota is refused at once: what does not
# fit now, the scheduler's own quota holds back.
package core.quota

import data.sluice.lib.ask
import data.sluice.lib.pools
import data.sluice.lib.words

deny contains {
	"msg": sprintf("the pod counts as %s of node pool %s; project %s may have %s there", [
		words.gpus(pools.charge), pool.name, input.project.name, words.amount(words.milli(pool.limit)),
	]),
	"fix": "ask for less, or an administrator of the department for more",
} if {
	ask.gpu
	every one in pools.chosen {
		pools.charge > words.milli(one.limit)
	}
	some pool in pools.chosen
}

# What is not preemptible never goes over what is guaranteed: nobody could have
# it back.
deny contains {
	"msg": sprintf("the pod counts as %s of node pool %s; pods of type %s cannot be preempted and stay within what is guaranteed to project %s, %s", [
		words.gpus(pools.charge), pool.name, input.workload.type,
		input.project.name, words.amount(words.milli(pool.guaranteed)),
	]),
	"fix": alternative,
} if {
	ask.gpu
	not ask.preemptible
	some fitting in pools.chosen
	pools.charge <= words.milli(fitting.limit)
	every one in pools.chosen {
		pools.charge > words.milli(one.guaranteed)
	}
	some pool in pools.chosen
}

alternative := "ask for less, or choose priorityClassName sluice-interactive-preemptible" if {
	input.workload.type == "interactive"
} else := "ask for less, or an administrator of the department for a larger guarantee"
