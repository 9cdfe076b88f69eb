# METADATA
# title: Interactive work on shared GPUs only
# description: >-
#   Refuses interactive pods with whole GPUs, with several GPUs, or with a share above the largest one, in projects that have a
#   node pool with shared GPUs. Notebooks are idle most of the time; a share of a GPU is enough to develop on.
package interactive_on_shared_gpus

deny contains {
	"msg": "interactive work runs on a share of a GPU",
	"fix": sprintf(`request a share, such as the annotation sluice.dev/gpu: "%d%s"`, [round(input.parameters.largestShare * 1000), "m"]),
} if {
	input.workload.type == "interactive"
	shared_pool
	too_large
}

too_large if input.workload.form == "Whole"

too_large if input.workload.devices > 1

too_large if {
	input.workload.form == "Share"
	input.workload.share > input.parameters.largestShare
}

too_large if {
	input.workload.form == "MIG"
	some pool in input.nodePools
	some product in pool.products
	some profile in product.profiles
	profile.name == input.workload.migProfile
	profile.quotaCharge > input.parameters.largestShare * 1000
}

shared_pool if {
	some pool in input.nodePools
	pool.sharing != "None"
}
