// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import "fmt"

// gpus returns the GPUs of one type of projects and pools, summed over the labels. Two replicas of lifecycle may report the same
// series for a moment while the leader changes, so the maximum comes first.
func gpus(kind, labels string) string {
	const all = `max by (project, department, pool) (sluice_project_gpus{project=~"$project", department=~"$department", pool=~"$pool", type=%q})`
	if labels == "" {
		return fmt.Sprintf("sum("+all+")", kind)
	}
	return fmt.Sprintf("sum by ("+labels+") ("+all+")", kind)
}

// quantile returns a quantile of a histogram by labels.
func quantile(q, metric, selector, labels string) string {
	by := "le"
	if labels != "" {
		by = labels + ", le"
	}
	return fmt.Sprintf("histogram_quantile(%s, sum by (%s) (rate(%s_bucket{%s}[$__rate_interval])))", q, by, metric, selector)
}

// cpuAndMemory returns panels of the processes of a job.
func cpuAndMemory(job, title string) []panel {
	return []panel{
		{
			title + ": memory", "Resident memory of each process. A steady rise for days is a leak.", graph, unitBytes, 12,
			[]query{{fmt.Sprintf(`process_resident_memory_bytes{job=%q}`, job), "{{instance}}"}},
		},
		{
			title + ": CPU", "Processor time of each process; 100 % is one core.", graph, unitPercent, 12,
			[]query{{fmt.Sprintf(`rate(process_cpu_seconds_total{job=%q}[$__rate_interval])`, job), "{{instance}}"}},
		},
	}
}

var (
	departmentVariable = variable{"department", "Department", "label_values(sluice_project_phase, department)"}
	projectVariable    = variable{"project", "Project", `label_values(sluice_project_phase{department=~"$department"}, project)`}
	poolVariable       = variable{"pool", "Node pool", "label_values(sluice_nodepool_gpus, pool)"}
	nodeVariable       = variable{"node", "Node", `label_values(sluice_gpunode_sample_timestamp_seconds{pool=~"$pool"}, node)`}
	webhookVariable    = variable{"webhook", "Webhook", "label_values(sluice_admission_duration_seconds_count, webhook)"}
)

func newDashboards() []dashboard {
	return []dashboard{newClusterDashboard(), newProjectDashboard(), newAdmissionDashboard(), newLifecycleDashboard(), newNodesDashboard()}
}

const (
	// gpusInUse counts the GPUs on which a pod computes, and idleGPUs those whose pods do not. GPUs whose use is not measured are
	// in neither.
	gpusInUse = `count(max by (uuid) (sluice_gpu_pod_utilization_ratio{project=~"$project"}) > 0) or vector(0)`
	idleGPUs  = `count(max by (uuid) (sluice_gpu_pod_utilization_ratio{project=~"$project"}) == 0) or vector(0)`
	poolSize  = `max by (pool) (sluice_nodepool_gpus{pool=~"$pool"})`
)

func newClusterDashboard() dashboard {
	return dashboard{
		"cluster", "Sluice / Cluster", "How many GPUs there are, who has them, who uses them, and what is pending.",
		[]variable{departmentVariable, projectVariable, poolVariable},
		[]row{
			{"Now", []panel{
				{"GPUs", "Physical GPUs of the node pools.", stat, unitGPUs, 4, []query{{"sum(" + poolSize + ")", "GPUs"}}},
				{"Allocated", "GPUs of pods that are bound to a node. A MIG slice counts as its part of a GPU.", stat, unitGPUs, 4, []query{{gpus("allocated", ""), "allocated"}}},
				{"In use", "GPUs on which a pod computes now, as the agents measure it.", stat, unitGPUs, 4, []query{{gpusInUse, "in use"}}},
				{"Allocated and idle", "GPUs that have pods, none of which computes now. GPUs whose use is not measured are not counted.", stat, unitGPUs, 4, []query{{idleGPUs, "idle"}}},
				{"Pending", "GPUs that work without a node requests: unscheduled pods, queued workloads, and pods refused for lack of quota.", stat, unitGPUs, 4, []query{{gpus("pending", ""), "pending"}}},
				{"Firing alerts", "Alerts of Sluice that fire now.", stat, unitNone, 4, []query{{`count(ALERTS{alertname=~"Sluice.*", alertstate="firing"}) or vector(0)`, "alerts"}}},
			}},
			{"GPUs over time", []panel{
				{"GPUs and their use", "The GPUs of the cluster, and what is done with them.", graph, unitGPUs, 12, []query{
					{"sum(" + poolSize + ")", "all"}, {gpus("allocated", ""), "allocated"}, {gpusInUse, "in use"}, {gpus("pending", ""), "pending"},
				}},
				{"Allocated by department", "GPUs of pods that are bound to a node.", graph, unitGPUs, 12, []query{{gpus("allocated", "department"), "{{department}}"}}},
				{"Allocated part of each node pool", "1 if all GPUs of the pool are allocated. Above 1 the pods hold more quota than the pool has GPUs.", graph, unitPercent, 12, []query{
					{gpus("allocated", "pool") + " / on (pool) (" + poolSize + " > 0)", "{{pool}}"},
				}},
				{"Utilization", "Mean utilization of the GPUs of each node, without those in MIG mode, whose driver does not report it.", graph, unitPercent, 12, []query{
					{`avg by (node) (sluice_gpu_utilization_ratio)`, "{{node}}"},
				}},
			}},
			{"Pending", []panel{
				{"Pending workloads by reason", "Workloads that are pending for lack of quota or of room, by the reason.", graph, unitNone, 12, []query{
					{`sum by (reason) (max by (project, reason) (sluice_pending_workloads{project=~"$project"}))`, "{{reason}}"},
				}},
				{"Longest pending", "How long the oldest pending work has been pending, of the ten projects where that is longest.", graph, unitDuration, 12, []query{
					{`topk(10, time() - max by (project) (sluice_oldest_pending_timestamp_seconds{project=~"$project"}))`, "{{project}}"},
				}},
				{"Time until a pod runs", "Time from the creation of GPU pods until their first container runs: half of them, and 95 of a hundred.", graph, unitSeconds, 12, []query{
					{quantile("0.5", "sluice_pod_pending_duration_seconds", `pool=~"$pool"`, "type"), "{{type}}, median"},
					{quantile("0.95", "sluice_pod_pending_duration_seconds", `pool=~"$pool"`, "type"), "{{type}}, 95 %"},
				}},
				{"Evicted pods", "Pods that were announced as evicted, and what became of them, by the reason.", graph, unitNone, 12, []query{
					{`sum by (reason, outcome) (increase(sluice_evictions_total[$__rate_interval]))`, "{{reason}}, {{outcome}}"},
				}},
			}},
		},
	}
}

func newProjectDashboard() dashboard {
	return dashboard{
		"project", "Sluice / Project", "The quota of projects against their use, their GPU hours, and their pods.",
		[]variable{departmentVariable, projectVariable, poolVariable},
		[]row{
			{"Quota", []panel{
				{"Quota and use", "GPUs that the projects hold, against what is guaranteed to them and their limit. Between both they are over quota.", graph, unitGPUs, 12, []query{
					{gpus("allocated", "project, pool"), "{{project}}, {{pool}}: allocated"},
					{gpus("guaranteed", "project, pool"), "{{project}}, {{pool}}: guaranteed"},
					{gpus("limit", "project, pool"), "{{project}}, {{pool}}: limit"},
				}},
				{"Over quota", "GPUs that the projects hold beyond their guarantee. Others may claim them.", graph, unitGPUs, 12, []query{{gpus("overQuota", "project, pool"), "{{project}}, {{pool}}"}}},
				{"Pending", "GPUs that pending work of the projects requests.", graph, unitGPUs, 12, []query{{gpus("pending", "project, pool"), "{{project}}, {{pool}}"}}},
				{"Counted by the API server", "GPUs that the ResourceQuotas count, less those that the pods have. It must be 0 but for moments.", graph, unitGPUs, 12, []query{
					{gpus("resourceQuota", "project, pool") + " - " + gpus("allocated", "project, pool") + " - " + gpus("unscheduled", "project, pool") + " + " + gpus("uncounted", "project, pool"), "{{project}}, {{pool}}"},
				}},
			}},
			{"GPU hours", []panel{
				{"GPU hours held", "Allocated GPUs multiplied by the time of the selected range.", table, unitGPUHours, 8, []query{
					{"sum by (project) (avg_over_time((" + gpus("allocated", "project") + ")[$__range:])) * $__range_s / 3600", ""},
				}},
				{"GPU hours recorded", "GPU hours that were added to the UsageRecords in the selected range, and whether the GPUs were used. Running work is added every hour.", table, unitGPUHours, 8, []query{
					{`sum by (project, use) (increase(sluice_usage_gpu_seconds_total{project=~"$project", department=~"$department"}[$__range])) / 3600`, ""},
				}},
				{"Part of recorded GPU hours in use", "1 if the pods computed all the time. GPUs whose use is not measured count as not in use.", graph, unitPercent, 8, []query{
					{`sum by (project) (increase(sluice_usage_gpu_seconds_total{project=~"$project", use="Used"}[1d])) / (sum by (project) (increase(sluice_usage_gpu_seconds_total{project=~"$project"}[1d])) > 0)`, "{{project}}"},
				}},
			}},
			{"Pods", []panel{
				{"Utilization of pods", "How much of its GPU or MIG device each pod uses.", graph, unitPercent, 12, []query{
					{`max by (project, namespace, pod) (sluice_gpu_pod_utilization_ratio{project=~"$project"})`, "{{namespace}}/{{pod}}"},
				}},
				{"Idle pods", "How long each pod has not used its GPUs. Interactive work is stopped at the idle timeout.", graph, unitDuration, 12, []query{
					{`time() - max by (project, namespace, pod) (sluice_gpu_pod_last_active_timestamp_seconds{project=~"$project"})`, "{{namespace}}/{{pod}}"},
				}},
				{"GPU memory of pods", "Memory that the processes of each pod use.", graph, unitBytes, 12, []query{
					{`sum by (project, namespace, pod) (sluice_gpu_pod_memory_used_bytes{project=~"$project"})`, "{{namespace}}/{{pod}}"},
				}},
				{"Memory beyond the share", "GPU memory by which pods exceed what they were given. Such pods are warned and then evicted.", graph, unitBytes, 12, []query{
					{`sum by (project, namespace, pod, reason) (sluice_gpu_pod_finding_excess_bytes{project=~"$project"})`, "{{namespace}}/{{pod}}: {{reason}}"},
				}},
			}},
			{"State", []panel{
				{"Problems", "Conditions of projects that report a problem. kubectl describe project has the message.", table, unitNone, 12, []query{
					{`max by (project, problem) (sluice_project_problem{project=~"$project", department=~"$department"})`, ""},
				}},
				{"Pending workloads", "Workloads that are pending, by the reason.", table, unitNone, 12, []query{
					{`max by (project, reason) (sluice_pending_workloads{project=~"$project"})`, ""},
				}},
			}},
		},
	}
}
