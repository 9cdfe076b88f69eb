// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// at returns the time that many minutes after now.
func at(minutes int) *metav1.Time {
	return ptr.To(metav1.NewTime(now.Add(time.Duration(minutes) * time.Minute)))
}

// toRoot returns an object as the API server serves it.
func toRoot(t testing.TB, apiVersion, kind string, object client.Object) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	root := &unstructured.Unstructured{Object: fields}
	root.SetAPIVersion(apiVersion)
	root.SetKind(kind)
	return root
}

// jobFacts are those of a Job that has no pods, in project thesis.
func jobFacts(t testing.TB, change ...func(*batchv1.Job)) Facts {
	t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thesis-ns", Name: "training", UID: "job", CreationTimestamp: *at(-60)},
		Spec:       batchv1.JobSpec{Parallelism: ptr.To(int32(1))},
	}
	for _, c := range change {
		c(job)
	}
	return Facts{
		Now: now, MachineNow: now, Namespace: "thesis-ns", ProjectName: "thesis",
		Workload: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: "training"},
		Root:     toRoot(t, "batch/v1", "Job", job),
		Project: &v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
			Spec: v1alpha1.ProjectSpec{Department: "students", Owners: []v1alpha1.Owner{
				{Contact: v1alpha1.Contact{Name: "Ada Lovelace", Email: "ada@example.org"}},
			}},
			Status: v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive},
		},
	}
}

// pod returns a pod of the Job.
func pod(phase corev1.PodPhase, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "thesis-ns", Name: "training-x7k2p", UID: "pod", CreationTimestamp: *at(-30),
			Labels: map[string]string{v1alpha1.LabelNodePool: "dgx"}, Annotations: map[string]string{},
		},
		Spec:   corev1.PodSpec{SchedulerName: "default-scheduler"},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = at(0) }

// gated is a pod with a scheduling gate.
func gated(gate string) corev1.Pod {
	return pod(corev1.PodPending, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}} })
}

func bound(p *corev1.Pod) {
	p.Spec.NodeName = "dgx-1"
	p.Status.StartTime = at(-10)
}

// unschedulable is a pod that the scheduler could not place, with its message.
func unschedulable(message string) corev1.Pod {
	return pod(corev1.PodPending, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
	})
}

// rival is a running pod of a StatefulSet with anti-affinity to pods with these labels.
func rival(name string, selected map[string]string) corev1.Pod {
	return pod(corev1.PodRunning, bound, func(p *corev1.Pod) {
		p.Name, p.UID = name, types.UID(name)
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: selected}, TopologyKey: corev1.LabelHostname,
			}},
		}}
	})
}

// waitingContainer is a pod whose container waits.
func waitingContainer(reason, message string, last *corev1.ContainerStateTerminated) corev1.Pod {
	return pod(corev1.PodPending, bound, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Image: "registry.example.org/torch:2.9",
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
			LastTerminationState: corev1.ContainerState{Terminated: last},
		}}
	})
}

func event(reason, message string) corev1.Event {
	return corev1.Event{Reason: reason, Message: message, LastTimestamp: *at(-1)}
}

// clock returns a clock in a state with a limit of two days.
func clock(state v1alpha1.ClockState, change func(*v1alpha1.WorkloadClockStatus)) *v1alpha1.WorkloadClock {
	c := &v1alpha1.WorkloadClock{Status: v1alpha1.WorkloadClockStatus{State: state}}
	limit := period.MustParseDuration("48h")
	c.Status.Limit = &v1alpha1.ClockLimit{Configured: limit, InForce: limit}
	if change != nil {
		change(&c.Status)
	}
	return c
}

func stopped(reason v1alpha1.EndReason, until *metav1.Time) *v1alpha1.WorkloadClock {
	return clock(v1alpha1.ClockStateStopped, func(s *v1alpha1.WorkloadClockStatus) {
		s.Stopped = &v1alpha1.ClockStop{At: *at(-20), Reason: reason, Until: until}
	})
}

func running(reason v1alpha1.EndReason, minutes int) *v1alpha1.WorkloadClock {
	return clock(v1alpha1.ClockStateRunning, func(s *v1alpha1.WorkloadClockStatus) {
		s.RunningSince, s.IdleSince = at(-600), at(-50)
		s.Deadline = &v1alpha1.ClockDeadline{At: *at(minutes), Reason: reason}
	})
}

func suspend(job *batchv1.Job) { job.Spec.Suspend = ptr.To(true) }

// kueueWorkload returns a Workload of Kueue with conditions.
func kueueWorkload(active bool, conditions ...map[string]any) unstructured.Unstructured {
	list := make([]any, 0, len(conditions))
	for _, c := range conditions {
		c["lastTransitionTime"] = "2026-11-27T11:30:00Z"
		list = append(list, c)
	}
	return unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "job-training-1a2b3"},
		"spec":     map[string]any{"active": active}, "status": map[string]any{"conditions": list},
	}}
}

func gpuQuota() corev1.ResourceQuota {
	full := corev1.ResourceList{
		"requests.sluice.dev/gpu-milli.dgx": resource.MustParse("1k"), "requests.sluice.dev/guaranteed-milli.dgx": resource.MustParse("1k"),
	}
	return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.QuotaName}, Status: corev1.ResourceQuotaStatus{Hard: full, Used: full}}
}

const quotaAnswer = `Error creating: pods "training-x7k2p" is forbidden: exceeded quota: sluice, ` +
	`requested: requests.sluice.dev/gpu-milli.dgx=500, used: requests.sluice.dev/gpu-milli.dgx=1k, limited: requests.sluice.dev/gpu-milli.dgx=1k`

// situations are what users meet. Each has a golden file.
func situations(t testing.TB) map[string]Facts {
	t.Helper()
	with := func(f Facts, change func(*Facts)) Facts { change(&f); return f }
	job := func(change func(*Facts)) Facts { return with(jobFacts(t), change) }
	suspended := func(change func(*Facts)) Facts { return with(jobFacts(t, suspend), change) }
	failed := func(reason, message string) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason, Message: message}}
		}
	}
	podRoot := func(change func(*Facts)) Facts {
		facts := jobFacts(t)
		facts.Workload = v1alpha1.WorkloadReference{APIVersion: "v1", Kind: "Pod", Name: "training"}
		facts.Root = toRoot(t, "v1", "Pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis-ns", Name: "training"}})
		return with(facts, change)
	}
	return map[string]Facts{
		"missing": {Now: now, MachineNow: now, Namespace: "thesis-ns", ProjectName: "thesis", Workload: v1alpha1.WorkloadReference{Name: "trainnig"}, Others: []string{"notebook", "training"}},
		"waiting-gpu-quota": job(func(f *Facts) {
			f.Events, f.Quotas = []corev1.Event{event("FailedCreate", quotaAnswer)}, []corev1.ResourceQuota{gpuQuota()}
			f.Project.Status.Workloads = []v1alpha1.WorkloadUsage{{Kind: "Pod", Name: "notebook", CreatedBy: "ben@example.org", GPUs: resource.MustParse("1")}}
		}),
		"waiting-object-quota": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: pods "training-x7k2p" is forbidden: exceeded quota: sluice, requested: pods=1, used: pods=500, limited: pods=500`)}
		}),
		"refused-policy": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: admission webhook "pods.sluice.dev" denied the request: the pod counts as 9 GPUs of node pool dgx; `+
				`project thesis may have 4 GPUs there; request less, or ask an administrator of the department for more (policy core.quota)`)}
		}),
		"refused-other-webhook": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: admission webhook "images.example.org" denied the request: image not signed`)}
		}),
		"refused-admission-policy": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: pods "x" is forbidden: ValidatingAdmissionPolicy 'sluice-node-name' with binding 'sluice-node-name' denied request: `+
				`dgx-2: a pod of a project does not choose its node; remove it`)}
		}),
		"refused-pod-security": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: pods "x" is forbidden: violates PodSecurity "baseline:latest": hostNetwork=true`)}
		}),
		"refused-expired-project": job(func(f *Facts) {
			f.Project.Status.Phase, f.Project.Status.ClosedAt = v1alpha1.ProjectExpired, at(-1440)
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: admission webhook "pods.sluice.dev" denied the request: project thesis has expired (policy core.project)`)}
		}),
		"waiting-webhook": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: Internal error occurred: failed calling webhook "pods.sluice.dev": context deadline exceeded`)}
		}),
		"waiting-not-queued": with(jobFacts(t, suspend, func(j *batchv1.Job) { j.Labels = map[string]string{v1alpha1.LabelKueueQueue: "dgx"} }), func(*Facts) {}),
		"starting-after-preemption": job(func(f *Facts) {
			preempted := pod(corev1.PodFailed, func(p *corev1.Pod) {
				p.Name = "training-aaaaa"
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"}}
			})
			f.Pods = []corev1.Pod{preempted, pod(corev1.PodPending, bound)}
		}),
		"waiting-no-free-gpu": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable("0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available.")}
		}),
		"waiting-slice": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/mig-3g.20gb.")}
		}),
		"waiting-repartitioning": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable("0/1 nodes are available: 1 node(s) had untolerated taint {sluice.dev/repartitioning: }.")}
		}),
		"refused-node-selector": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")}
			f.Pods[0].Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "dgx-9"}
		}),
		"waiting-no-node": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")}
		}),
		"waiting-anti-affinity": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable("0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules.")}
			f.Pods[0].Labels["app"] = "db"
			f.Neighbors = append(f.Pods, rival("db-0", map[string]string{"tier": "x"}), rival("db-1", map[string]string{"app": "db", v1alpha1.LabelCreator: "abc"}))
			f.Pods[0].Labels[v1alpha1.LabelCreator] = "abc"
		}),
		"waiting-own-anti-affinity": job(func(f *Facts) {
			waiting := unschedulable("0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match pod anti-affinity rules.")
			waiting.Spec.Affinity = rival("", nil).Spec.Affinity
			f.Pods, f.Neighbors = []corev1.Pod{waiting}, []corev1.Pod{pod(corev1.PodRunning, bound, func(p *corev1.Pod) {
				p.UID, p.Name, p.Annotations = "other", "notebook", map[string]string{v1alpha1.AnnotationCreatedBy: "ben@example.org"}
			})}
		}),
		"waiting-unknown-anti-affinity": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.")}
			f.Neighbors = f.Pods
		}),
		"waiting-volume": job(func(f *Facts) {
			f.Pods = []corev1.Pod{unschedulable(`0/3 nodes are available: persistentvolumeclaim "data" not found.`)}
		}),
		"waiting-not-scheduled": job(func(f *Facts) { f.Pods = []corev1.Pod{pod(corev1.PodPending)} }),
		"waiting-kueue": suspended(func(f *Facts) {
			f.Queued = []unstructured.Unstructured{kueueWorkload(true, map[string]any{
				"type": "QuotaReserved", "status": "False", "reason": "Pending",
				"message": "couldn't assign flavors to pod set main: insufficient unused quota for sluice.dev/gpu-milli in flavor dgx, 500 more needed",
			})}
		}),
		"preempted-kueue": suspended(func(f *Facts) {
			f.Queued = []unstructured.Unstructured{kueueWorkload(
				true,
				map[string]any{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": ""},
				map[string]any{"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted"},
				map[string]any{
					"type": "Preempted", "status": "True", "reason": "InCohortReclamation",
					"message": "Preempted to accommodate a workload; preemptor path: /students/lab; preemptee path: /students/thesis",
				},
			)}
		}),
		"paused-kueue-inactive": suspended(func(f *Facts) { f.Queued = []unstructured.Unstructured{kueueWorkload(false)} }),
		"waiting-put-back": suspended(func(f *Facts) {
			f.Queued = []unstructured.Unstructured{kueueWorkload(false)}
			f.Queued[0].SetAnnotations(map[string]string{v1alpha1.AnnotationPutBack: "1 2026-11-27T12:05:00Z"})
		}),
		"waiting-kai": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodPending)}
			f.Groups = []unstructured.Unstructured{{Object: map[string]any{
				"metadata": map[string]any{"name": "pg-training"},
				"status": map[string]any{"schedulingConditions": []any{map[string]any{
					"type": "UnschedulableOnNodePool", "nodePool": "default", "transitionID": "1",
					"reasons": []any{map[string]any{
						"reason":  "OverLimit",
						"message": "thesis quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 1 GPUs allocated and workload requested 1 GPUs",
					}},
				}}},
			}}}
		}),
		"starting": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodPending, bound)}
			f.Events = []corev1.Event{event("FailedMount", `MountVolume.SetUp failed for volume "data": secret "keys" not found`)}
			f.Clock = running(v1alpha1.EndStartTimeout, 20)
		}),
		"failed-image": job(func(f *Facts) {
			f.Pods = []corev1.Pod{waitingContainer("ImagePullBackOff", `Back-off pulling image "registry.example.org/torch:2.9": not found`, nil)}
		}),
		"failed-crash-loop": job(func(f *Facts) {
			f.Pods = []corev1.Pod{waitingContainer("CrashLoopBackOff", "", &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"})}
		}),
		"failed-job": with(jobFacts(t, failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")), func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodFailed, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
			})}
		}),
		"finished-job": jobFacts(t, func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}),
		"stopped-max-runtime": suspended(func(f *Facts) { f.Clock = stopped(v1alpha1.EndMaxRuntime, at(40)) }),
		"stopped-may-start":   suspended(func(f *Facts) { f.Clock = stopped(v1alpha1.EndMaxRuntime, at(-5)) }),
		"stopped-extension-pending": suspended(func(f *Facts) {
			f.Clock = stopped(v1alpha1.EndMaxRuntime, nil)
			f.Extensions = []v1alpha1.Extension{{
				ObjectMeta: metav1.ObjectMeta{Name: "job-training-abc12"},
				Spec:       v1alpha1.ExtensionSpec{Action: v1alpha1.ActionExtend, By: ptr.To(period.MustParseDuration("24h"))},
			}}
		}),
		"stopped-extension-denied": suspended(func(f *Facts) {
			f.Clock = stopped(v1alpha1.EndMaxRuntime, at(40))
			f.Extensions = []v1alpha1.Extension{{
				ObjectMeta: metav1.ObjectMeta{Name: "job-training-abc12"},
				Spec:       v1alpha1.ExtensionSpec{Action: v1alpha1.ActionExtend},
				Status:     v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, DecidedBy: "dean@example.org", Message: "the deadline of the course comes first"},
			}}
		}),
		"stopped-idle-deployment": with(Facts{}, func(f *Facts) {
			*f = jobFacts(t)
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
				Namespace: "thesis-ns", Name: "notebook", Annotations: map[string]string{v1alpha1.AnnotationReplicasBefore: "2"},
			}}
			f.Root, f.Workload = toRoot(t, "apps/v1", "Deployment", deployment), v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "notebook"}
			f.Clock = stopped(v1alpha1.EndIdle, at(-10))
		}),
		"stopped-kueue-job": with(jobFacts(t, suspend, func(j *batchv1.Job) { j.Labels = map[string]string{v1alpha1.LabelKueueQueue: "dgx"} }), func(f *Facts) {
			f.Clock = stopped(v1alpha1.EndMaxRuntime, at(-10))
		}),
		"stopped-idle-pod": with(Facts{}, func(f *Facts) {
			*f = jobFacts(t)
			f.Root, f.Workload = nil, v1alpha1.WorkloadReference{APIVersion: "v1", Kind: "Pod", Name: "notebook"}
			f.Clock = stopped(v1alpha1.EndIdle, at(-10))
		}),
		"stopped-suspended-project": suspended(func(f *Facts) { f.Clock = stopped(v1alpha1.EndProjectSuspended, nil) }),
		"preempted-pod": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodFailed, func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: *at(-3),
					Message: "default-scheduler: preempting to accommodate a higher priority pod",
				}}
			})}
		}),
		"ending-eviction": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound, func(p *corev1.Pod) {
				p.Annotations[v1alpha1.AnnotationPreemptAt], p.Annotations[v1alpha1.AnnotationPreemptReason] = at(5).Format(time.RFC3339), "Preempted"
			})}
		}),
		"ending-share-exceeded": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound, func(p *corev1.Pod) {
				p.Annotations[v1alpha1.AnnotationPreemptAt], p.Annotations[v1alpha1.AnnotationPreemptReason] = at(5).Format(time.RFC3339), "ShareExceeded"
			})}
		}),
		"ending-max-runtime": job(func(f *Facts) {
			f.Pods, f.Clock = []corev1.Pod{pod(corev1.PodRunning, bound)}, running(v1alpha1.EndMaxRuntime, 90)
		}),
		"ending-idle": job(func(f *Facts) {
			f.Pods, f.Clock = []corev1.Pod{pod(corev1.PodRunning, bound)}, running(v1alpha1.EndIdle, 70)
		}),
		"running": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound, func(p *corev1.Pod) {
				p.Annotations[v1alpha1.AnnotationDecisions] = `{"core.gpu":["spec.containers[main].resources"],"images":["denial exempted"],"proxy":["spec.containers[main].env[HTTPS_PROXY]"]}`
			})}
			f.Clock = running(v1alpha1.EndMaxRuntime, 2000)
		}),
		"stopped-start-timeout":   suspended(func(f *Facts) { f.Clock = stopped(v1alpha1.EndStartTimeout, at(40)) }),
		"stopped-share-exceeded":  suspended(func(f *Facts) { f.Clock = stopped(v1alpha1.EndShareExceeded, at(40)) }),
		"stopped-preempted":       suspended(func(f *Facts) { f.Clock = stopped(v1alpha1.EndPreempted, at(40)) }),
		"stopped-deleted-project": suspended(func(f *Facts) { f.Clock = stopped(v1alpha1.EndProjectDeleted, nil) }),
		"stopped-still-ending": suspended(func(f *Facts) {
			f.Clock = stopped(v1alpha1.EndMaxRuntime, at(40))
			f.Clock.Status.State, f.Clock.Status.Limit = v1alpha1.ClockStateStopping, nil
			f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound, terminating)}
		}),
		"refused-deleted-project": job(func(f *Facts) {
			f.Project.Status.Phase, f.Project.DeletionTimestamp, f.Project.Status.ClosedAt = v1alpha1.ProjectActive, at(-10), at(-10)
			f.Clock = clock(v1alpha1.ClockStatePending, nil)
		}),
		"refused-several-policies": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: admission webhook "pods.sluice.dev" denied the request: no owner label (policy required-owner)`+"\n"+`image x is of no allowed registry (policy registries)`)}
		}),
		"refused-by-controller": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", `Error creating: Pod "training-x7k2p" is invalid: spec.containers[0].name: Required value`)}
		}),
		"waiting-guaranteed-quota": job(func(f *Facts) {
			f.Events = []corev1.Event{event("FailedCreate", strings.ReplaceAll(quotaAnswer, "gpu-milli", "guaranteed-milli"))}
			f.Quotas = []corev1.ResourceQuota{gpuQuota()}
			for _, name := range []string{"a", "b", "c", "d"} {
				f.Project.Status.Workloads = append(f.Project.Status.Workloads, v1alpha1.WorkloadUsage{Kind: "Job", Name: name, GPUs: resource.MustParse("250m")})
			}
			f.Project.Status.MoreWorkloads = 2
		}),
		"waiting-unreadable-quota": job(func(f *Facts) {
			f.Events, f.Unread = []corev1.Event{event("FailedCreate", quotaAnswer)}, []string{"quotas: forbidden"}
		}),
		"waiting-kueue-gate":      job(func(f *Facts) { f.Pods = []corev1.Pod{gated(v1alpha1.GateKueue)} }),
		"waiting-scheduling-gate": job(func(f *Facts) { f.Pods = []corev1.Pod{gated("example.org/budget")} }),
		"waiting-admission-check": suspended(func(f *Facts) {
			f.Queued = []unstructured.Unstructured{kueueWorkload(true, map[string]any{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""})}
		}),
		"waiting-kueue-new": suspended(func(f *Facts) { f.Queued = []unstructured.Unstructured{kueueWorkload(true)} }),
		"waiting-scheduler-event": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodPending)}
			f.Events = []corev1.Event{event("FailedScheduling", "0/3 nodes are available: 3 node(s) had volume node affinity conflict.")}
		}),
		"waiting-scheduler-other": job(func(f *Facts) { f.Pods = []corev1.Pod{unschedulable("0/3 nodes are available: 3 Too many pods.")} }),
		"failed-missing-config": job(func(f *Facts) {
			f.Pods = []corev1.Pod{waitingContainer("CreateContainerConfigError", `secret "keys" not found`, nil)}
		}),
		"failed-restart-limit": with(jobFacts(t, failed("DeadlineExceeded", "Job was active longer than specified deadline")), func(f *Facts) {
			f.Clock = stopped(v1alpha1.EndMaxRuntime, nil)
			f.Clock.Status.State = v1alpha1.ClockStateFinished
		}),
		"failed-evicted-pod": podRoot(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodFailed, func(p *corev1.Pod) {
				p.Name, p.Status.Reason, p.Status.Message = "training", "Evicted", "The node was low on resource: ephemeral-storage"
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}}}
			})}
		}),
		"finished-pod": podRoot(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodSucceeded, func(p *corev1.Pod) { p.Name = "training" })}
		}),
		"preempted-single-pod": podRoot(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodFailed, func(p *corev1.Pod) {
				p.Name = "training"
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", LastTransitionTime: *at(-3),
					Message: "Taint manager: deleting due to NoExecute taint",
				}}
			})}
		}),
		"finished-former":  job(func(f *Facts) { f.Root, f.Clock = nil, clock(v1alpha1.ClockStateFinished, nil) }),
		"finished-deleted": job(func(f *Facts) { f.Root, f.Clock = nil, clock(v1alpha1.ClockStateDeleted, nil) }),
		"preempted-deleted": job(func(f *Facts) {
			f.Root, f.Clock = nil, clock(v1alpha1.ClockStateDeleted, nil)
			f.Events = []corev1.Event{event("ShareExceeded", "Pod notebook used 12 GiB of GPU memory; its share is 10 GiB")}
		}),
		"ending-terminating": job(func(f *Facts) {
			f.Root.SetDeletionTimestamp(at(0))
			f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound, terminating)}
		}),
		"ending-suspended-project": job(func(f *Facts) {
			f.Pods, f.Clock = []corev1.Pod{pod(corev1.PodRunning, bound)}, running(v1alpha1.EndProjectSuspended, 600)
		}),
		"ending-start-timeout": job(func(f *Facts) {
			f.Pods, f.Clock = []corev1.Pod{pod(corev1.PodRunning, bound)}, running(v1alpha1.EndStartTimeout, 5)
		}),
		"ending-now": job(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound, func(p *corev1.Pod) {
				p.Annotations[v1alpha1.AnnotationPreemptAt], p.Annotations[v1alpha1.AnnotationPreemptReason] = at(-1).Format(time.RFC3339), "Preempted"
			})}
		}),
		"running-unlimited": job(func(f *Facts) {
			f.Pods, f.Clock = []corev1.Pod{pod(corev1.PodRunning, bound)}, clock(v1alpha1.ClockStateRunning, nil)
		}),
		"running-without-clock": job(func(f *Facts) { f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound)} }),
		"ending-held": job(func(f *Facts) {
			f.Pods, f.Clock = []corev1.Pod{pod(corev1.PodRunning, bound)}, running(v1alpha1.EndMaxRuntime, 30)
			f.Clock.Status.Deadline.HeldFrom, f.Clock.Status.Limit = at(-30), nil
			f.Clock.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionUnstoppable, Status: metav1.ConditionTrue, Message: "the API server refused the patch",
			}}
			for _, kind := range []string{v1alpha1.ConditionDryRun, v1alpha1.ConditionIdleUnknown} {
				f.Clock.Status.Conditions = append(f.Clock.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
			}
			f.Events = []corev1.Event{event("FailedCreate", quotaAnswer)}
			f.Extensions = []v1alpha1.Extension{{
				ObjectMeta: metav1.ObjectMeta{Name: "job-training-abc12"}, Spec: v1alpha1.ExtensionSpec{Action: v1alpha1.ActionExtend},
				Status: v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved},
			}}
		}),
		"paused-released": suspended(func(f *Facts) {
			f.Pods = []corev1.Pod{pod(corev1.PodRunning, bound, terminating)}
			f.Events = []corev1.Event{event("StopReleased", "It may be started again: the project was renewed")}
		}),
		"paused-pytorchjob": with(Facts{}, func(f *Facts) {
			*f = jobFacts(t, suspend)
			f.Root.SetAPIVersion("kubeflow.org/v1")
			f.Root.SetKind("PyTorchJob")
			_ = unstructured.SetNestedField(f.Root.Object, true, "spec", "runPolicy", "suspend")
			f.Workload = v1alpha1.WorkloadReference{APIVersion: "kubeflow.org/v1", Kind: "PyTorchJob", Name: "training"}
		}),
		"paused-by-user": suspended(func(*Facts) {}),
		"paused-while-waiting": suspended(func(f *Facts) {
			f.Events, f.Quotas = []corev1.Event{event("FailedCreate", quotaAnswer)}, []corev1.ResourceQuota{gpuQuota()}
		}),
		"missing-among-many": {Now: now, MachineNow: now, Namespace: "thesis-ns", Workload: v1alpha1.WorkloadReference{Name: "trainnig"}, Others: []string{"notebook", "training", "..."}},
		"unknown":            job(func(f *Facts) { f.Unread = []string{"events: forbidden"} }),
	}
}
