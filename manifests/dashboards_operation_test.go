// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

// sluiceWebhooks selects Sluice's webhooks in the metrics of the API server.
const sluiceWebhooks = `name=~".+[.]sluice[.]dev"`

func newAdmissionDashboard() dashboard {
	return dashboard{
		"admission", "Sluice / Admission", "What the webhook answers, how fast, what it refuses and why.",
		[]variable{webhookVariable},
		[]row{
			{"Requests", []panel{
				{"Replicas of the webhook", "Replicas that Prometheus reaches.", stat, unitNone, 8, []query{{`sum(up{job="sluice-webhook"})`, "replicas"}}},
				{"Policies with problems", "Policies that do not compile, are not in force, or took too long in the last hour.", stat, unitNone, 8, []query{{`count(max by (policy) (sluice_policy_problem)) or vector(0)`, "policies"}}},
				{"Certificate expires", "When the first certificate of a replica expires. Sluice renews it long before.", stat, unitTime, 8, []query{{`min(sluice_certificate_expiry_timestamp_seconds) * 1000`, "certificate"}}},
				{"Requests by webhook", "Admission requests that the webhook answers.", graph, unitRate, 12, []query{
					{`sum by (webhook) (rate(sluice_admission_duration_seconds_count{webhook=~"$webhook"}[$__rate_interval]))`, "{{webhook}}"},
				}},
				{"Requests by result", "Admission requests, allowed or refused.", graph, unitRate, 12, []query{
					{`sum by (allowed) (rate(sluice_admission_duration_seconds_count{webhook=~"$webhook"}[$__rate_interval]))`, "allowed: {{allowed}}"},
				}},
			}},
			{"Latency", []panel{
				{"Latency for the API server", "Time of 99 of 100 calls, with the network, as the API server measures it.", graph, unitSeconds, 12, []query{
					{quantile("0.99", "apiserver_admission_webhook_admission_duration_seconds", sluiceWebhooks, "name"), "{{name}}"},
				}},
				{"Latency in the webhook", "Time of 99 of 100 requests, and of half of them, within the webhook.", graph, unitSeconds, 12, []query{
					{quantile("0.99", "sluice_admission_duration_seconds", `webhook=~"$webhook"`, "webhook"), "{{webhook}}, 99 %"},
					{quantile("0.5", "sluice_admission_duration_seconds", `webhook=~"$webhook"`, "webhook"), "{{webhook}}, median"},
				}},
				{"Time of policies", "Time of 99 of 100 evaluations of each policy.", graph, unitSeconds, 12, []query{{quantile("0.99", "sluice_policy_duration_seconds", "", "policy"), "{{policy}}"}}},
				{"Evaluations without a result", "Evaluations of policies that failed or took too long, or for which the time was missing.", graph, unitRate, 12, []query{
					{`sum by (policy, result) (rate(sluice_policy_duration_seconds_count{result=~"failed|timed-out|unevaluated"}[$__rate_interval]))`, "{{policy}}: {{result}}"},
				}},
			}},
			{"Refusals", []panel{
				{"Refusals by policy", "Objects that each policy refused, or would have refused in Warn or DryRun.", graph, unitNone, 12, []query{
					{`sum by (policy) (increase(sluice_policy_violations_total[$__rate_interval]))`, "{{policy}}"},
				}},
				{"Refusals in the selected range", "The policies that refused most. kubectl describe policy shows examples.", table, unitNone, 12, []query{
					{`sum by (policy) (increase(sluice_policy_violations_total[$__range])) > 0`, ""},
				}},
				{"Violations by existing objects", "Objects that exist and that each policy would refuse or change now, as of its last audit. sluice policy audit --latest lists them.", table, unitNone, 12, []query{
					{`max by (policy) (sluice_audit_violations) > 0`, ""},
				}},
				{"Refusals by the API server", "Requests that Sluice's admission policies (ValidatingAdmissionPolicy) refused, without the webhook.", graph, unitNone, 12, []query{
					{`sum by (policy) (increase(apiserver_validating_admission_policy_check_total{policy=~"sluice.*", enforcement_action="deny"}[$__rate_interval]))`, "{{policy}}"},
				}},
				{"Failed calls", "Calls of the webhook that the API server could not complete: refused, or passed unchecked where the webhook fails open.", graph, unitNone, 12, []query{
					{`sum by (name) (increase(apiserver_admission_webhook_rejection_count{` + sluiceWebhooks + `, error_type!="no_error"}[$__rate_interval]))`, "{{name}}: refused"},
					{`sum by (name) (increase(apiserver_admission_webhook_fail_open_count{` + sluiceWebhooks + `}[$__rate_interval]))`, "{{name}}: unchecked"},
				}},
				{"Repeated requests", "Pods whose creation the client was asked to repeat, since policies, their data, the project or its node pools changed a moment ago.", graph, unitNone, 12, []query{
					{`sum(increase(sluice_admission_retries_total[$__rate_interval]))`, "repeated"},
				}},
				{"Dropped dry runs", "Objects for which the policies in DryRun were not evaluated, because too many were pending.", graph, unitNone, 12, []query{
					{`sum(increase(sluice_policy_dry_runs_dropped_total[$__rate_interval]))`, "dropped"},
				}},
			}},
			{"Processes", cpuAndMemory("sluice-webhook", "Webhook")},
		},
	}
}

func newLifecycleDashboard() dashboard {
	return dashboard{
		"lifecycle", "Sluice / Lifecycle", "What ends next, which mails are sent, and whether the controllers work.",
		[]variable{departmentVariable, projectVariable},
		[]row{
			{"Now", []panel{
				{"Leader", "Whether a replica of lifecycle runs the controllers.", stat, unitBool, 4, []query{{`max(sluice_lifecycle_leader)`, "leader"}}},
				{"Engaged stop limiters", "Departments in which stops wait for an administrator.", stat, unitNone, 4, []query{{`sum(max by (department) (sluice_stop_limiter_engaged)) or vector(0)`, "departments"}}},
				{"Unstoppable workloads", "Workloads that run although Sluice stopped them.", stat, unitNone, 4, []query{{`sum(max by (project) (sluice_unstoppable_workloads)) or vector(0)`, "workloads"}}},
				{"Oldest unsent mail", "How long the oldest mail that is due is unsent.", stat, unitDuration, 4, []query{{`max(sluice_notices_oldest_pending_seconds)`, "age"}}},
				{"Mail paused", "Whether an administrator or a bad configuration holds all mail.", stat, unitBool, 4, []query{{`max(sluice_mail_paused)`, "paused"}}},
				{"Sluice paused", "Whether an administrator made denials of policies warnings, and holds time limits, evictions and expiry.", stat, unitBool, 4, []query{{`max(sluice_paused)`, "paused"}}},
			}},
			{"What ends next", []panel{
				{"Next end in each project", "When the first running workload of the project will be stopped, and why.", table, unitTime, 12, []query{
					{`sort(max by (project, reason) (sluice_workload_next_deadline_timestamp_seconds{project=~"$project"})) * 1000`, ""},
				}},
				{"Next step of projects", "When the next phase of each project begins, if it is not renewed.", table, unitTime, 12, []query{
					{`sort(max by (project, department, phase) (sluice_project_next_step_timestamp_seconds{project=~"$project", department=~"$department"})) * 1000`, ""},
				}},
				{"Workloads that end soon", "Running workloads whose deadline is at most so far away.", graph, unitNone, 12, []query{
					{`sum by (within) (max by (project, within) (sluice_workloads_ending{project=~"$project"}))`, "within {{within}}"},
				}},
				{"Workloads by state", "Workloads with GPUs by the state of their clock.", graph, unitNone, 12, []query{
					{`sum by (state) (max by (project, state) (sluice_workloads{project=~"$project"}))`, "{{state}}"},
				}},
				{"Stopped workloads", "Workloads that Sluice stopped, by the reason.", graph, unitNone, 12, []query{{`sum by (reason) (increase(sluice_workload_stops_total[$__rate_interval]))`, "{{reason}}"}}},
				{"Delay of stops", "Time between the deadline of a workload and its stop: 99 of 100.", graph, unitSeconds, 12, []query{{quantile("0.99", "sluice_workload_deadline_lag_seconds", "", ""), "99 %"}}},
				{"Projects by phase", "Projects in each phase of their life.", graph, unitNone, 12, []query{
					{`sum by (phase) (max by (project, phase) (sluice_project_phase{project=~"$project", department=~"$department"}))`, "{{phase}}"},
				}},
				{"Steps and renewals", "Projects that changed their phase, and renewals.", graph, unitNone, 12, []query{
					{`sum by (phase) (increase(sluice_project_steps_total{department=~"$department"}[$__rate_interval]))`, "{{phase}}"},
					{`sum by (approval) (increase(sluice_project_renewals_total{department=~"$department"}[$__rate_interval]))`, "renewed: {{approval}}"},
				}},
			}},
			{"Notices", []panel{
				{"Mails by result", "Attempts to send Notices. Failed ones are not tried again.", graph, unitNone, 12, []query{{`sum by (result) (increase(sluice_notices_total[$__rate_interval]))`, "{{result}}"}}},
				{"Unsent mails", "Notices that are still to be sent, most of them later.", graph, unitNone, 12, []query{{`max(sluice_notices_pending)`, "pending"}}},
				{"Time to submit a mail", "Time of 95 of 100 mails until the mail server accepts them.", graph, unitSeconds, 12, []query{{quantile("0.95", "sluice_mail_delivery_duration_seconds", "", ""), "95 %"}}},
				{"Projects with unsent warnings", "Projects whose warning is due and was not sent. Their expiry waits.", graph, unitNone, 12, []query{
					{`max by (department) (sluice_project_warnings_unsent{department=~"$department"})`, "{{department}}"},
				}},
			}},
			{"Controllers", []panel{
				{"Passes of controllers", "Passes of each controller.", graph, unitRate, 8, []query{{`sum by (controller) (rate(controller_runtime_reconcile_total{job="sluice-lifecycle"}[$__rate_interval]))`, "{{controller}}"}}},
				{"Failed passes", "Passes that failed and are repeated. The log has each cause.", graph, unitRate, 8, []query{{`sum by (controller) (rate(controller_runtime_reconcile_errors_total{job="sluice-lifecycle"}[$__rate_interval]))`, "{{controller}}"}}},
				{"Queued requests", "Objects that are queued for a pass of their controller.", graph, unitNone, 8, []query{{`sum by (name) (workqueue_depth{job="sluice-lifecycle"})`, "{{name}}"}}},
			}},
			{"Processes", cpuAndMemory("sluice-lifecycle", "Lifecycle")},
		},
	}
}

func newNodesDashboard() dashboard {
	return dashboard{
		"nodes", "Sluice / Nodes", "The GPUs of each node: their health, MIG layout, memory and use, and the agents that report them.",
		[]variable{poolVariable, nodeVariable},
		[]row{
			{"Agents and health", []panel{
				{"GPUs by health", "GPUs that the agents report as healthy, unhealthy or lost.", graph, unitGPUs, 8, []query{
					{`sum by (health) (max by (node, health) (sluice_gpunode_gpus{node=~"$node", pool=~"$pool"}))`, "{{health}}"},
				}},
				{"Age of the last report", "An agent reports at least once a minute. Above three minutes it counts as absent.", graph, unitDuration, 8, []query{
					{`time() - (max by (node) (sluice_gpunode_sample_timestamp_seconds{node=~"$node", pool=~"$pool"}) > 0)`, "{{node}}"},
				}},
				{"Problems", "Conditions of GPUNodes that report a problem. kubectl describe gpunode has the message.", table, unitNone, 8, []query{
					{`max by (node, pool, problem) (sluice_gpunode_problem{node=~"$node", pool=~"$pool"})`, ""},
				}},
			}},
			{"MIG layout", []panel{
				{"MIG instances", "GPU instances of each node, by profile and state.", table, unitNone, 8, []query{{`sum by (node, profile, state) (sluice_mig_instances{node=~"$node"})`, ""}}},
				{"MIG instances by profile", "GPU instances of all selected nodes.", graph, unitNone, 8, []query{{`sum by (profile, state) (sluice_mig_instances{node=~"$node"})`, "{{profile}}, {{state}}"}}},
				{"Requested MIG instances", "Instances that pending pods request. The planner looks for a layout that has them.", graph, unitNone, 8, []query{{`max by (profile) (sluice_mig_requested_instances)`, "{{profile}}"}}},
				{"Repartitions", "Repartitions of nodes, by their result.", graph, unitNone, 8, []query{{`sum by (result) (increase(sluice_mig_repartitions_total[$__rate_interval]))`, "{{result}}"}}},
				{"Nodes being repartitioned", "Nodes that take no GPU pods because their GPUs are being repartitioned.", graph, unitNone, 8, []query{{`max(sluice_mig_repartitioning_nodes)`, "nodes"}}},
				{"Duration of repartitions", "How long nodes took no GPU pods: 95 of 100 repartitions.", graph, unitSeconds, 8, []query{{quantile("0.95", "sluice_mig_repartition_duration_seconds", "", ""), "95 %"}}},
			}},
			{"Memory and use", []panel{
				{"Memory in use", "Used part of the memory of each GPU.", graph, unitPercent, 12, []query{
					{`max by (node, gpu) (sluice_gpu_memory_used_bytes{node=~"$node"}) / max by (node, gpu) (sluice_gpu_memory_total_bytes{node=~"$node"})`, "{{node}}, GPU {{gpu}}"},
				}},
				{"Utilization of GPUs", "Utilization of each GPU that is not in MIG mode.", graph, unitPercent, 12, []query{{`max by (node, gpu) (sluice_gpu_utilization_ratio{node=~"$node"})`, "{{node}}, GPU {{gpu}}"}}},
				{"Utilization of MIG devices", "Utilization of each MIG device, where the driver or dcgm-exporter measures it.", graph, unitPercent, 12, []query{
					{`max by (node, gpu, device) (sluice_gpu_instance_utilization_ratio{node=~"$node"})`, "{{node}}, GPU {{gpu}}, {{device}}"},
				}},
				{"Processes outside of pods", "Processes on GPUs that belong to no pod. They take memory and time from pods.", graph, unitNone, 12, []query{
					{`sum by (node, kind) (sluice_gpu_other_processes{node=~"$node"})`, "{{node}}: {{kind}}"},
				}},
			}},
			{"Driver", []panel{
				{"Failed driver calls", "Calls of the driver's library that failed, by the error's code.", graph, unitRate, 8, []query{{`sum by (node, call, code) (rate(sluice_nvml_errors_total{node=~"$node"}[$__rate_interval]))`, "{{node}}: {{call}}, {{code}}"}}},
				{"Slow driver calls", "Time of 99 of 100 calls of the driver's library.", graph, unitSeconds, 8, []query{{quantile("0.99", "sluice_nvml_call_duration_seconds", `node=~"$node"`, "call"), "{{call}}"}}},
				{"Changes and reloads", "Changes of MIG layouts by the agents, and reloads of the device plugin, by their result.", graph, unitNone, 8, []query{
					{`sum by (result) (increase(sluice_mig_layout_changes_total{node=~"$node"}[$__rate_interval]))`, "layout: {{result}}"},
					{`sum by (result) (increase(sluice_device_plugin_reloads_total{node=~"$node"}[$__rate_interval]))`, "device plugin: {{result}}"},
				}},
			}},
			{"Processes", cpuAndMemory("sluice-gpuagent", "Agents")},
		},
	}
}
