// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/kaigroup"
)

const (
	kaiLab     = "kai-lab"
	podGrouper = "system:serviceaccount:kai-scheduler:pod-grouper"
	eve        = "eve@example.org"
)

// Stand-ins replace the kinds and components of KAI-Scheduler. The test covers the queues of
// a project, the labels of its pods, the queue of its PodGroups for every owner
// requests, and the next node pool when the first is full.
func TestKAI(t *testing.T) {
	t.Parallel()
	installKAI(t)
	createKAILab(t)
	grouper, user := kaiClient(t, podGrouper), kaiClient(t, eve)

	t.Run("queues for each node pool", func(t *testing.T) {
		for name, want := range map[string]map[string]any{
			"department.kai-faculty.kai-a": queueSpec("kai-faculty", "", 2, 4),
			"department.kai-faculty.kai-b": queueSpec("kai-faculty", "", 2, 4),
			"kai-lab.kai-a":                queueSpec(kaiLab, "department.kai-faculty.kai-a", 1, 2),
			"kai-lab.kai-b":                queueSpec(kaiLab, "department.kai-faculty.kai-b", 1, 2),
		} {
			eventually(t, func() error {
				queue := newKAIObject("Queue", "v2")
				if err := sharedCluster.adminClient.Get(t.Context(), types.NamespacedName{Name: name}, queue); err != nil {
					return err
				}
				if diff := cmp.Diff(want, queue.Object["spec"]); diff != "" {
					return fmt.Errorf("queue %s (-want +got)\n%s", name, diff)
				}
				return nil
			})
		}
	})

	pod := kaiPod("train", nil)
	if err := user.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, pod) })
	t.Run("pods get the labels that KAI reads", func(t *testing.T) {
		want := map[string]string{
			"kai.scheduler/queue": "kai-lab.kai-a", "kai.scheduler/node-pool": "kai-a", "kai.scheduler/preemptibility": "preemptible",
			v1alpha1.LabelNodePool: "kai-a", v1alpha1.LabelProject: kaiLab, v1alpha1.LabelDepartment: "kai-faculty", v1alpha1.LabelWorkloadType: "train",
			v1alpha1.LabelCreator: v1alpha1.CreatorLabel(eve),
		}
		if diff := cmp.Diff(want, pod.Labels); diff != "" || pod.Spec.SchedulerName != "kai-scheduler" || pod.Annotations[v1alpha1.AnnotationNodePools] != "kai-a,kai-b" {
			t.Errorf("scheduler %s, pools %s, labels (-want +got)\n%s", pod.Spec.SchedulerName, pod.Annotations[v1alpha1.AnnotationNodePools], diff)
		}
	})

	// The podgrouper creates such a group for an owner with forged labels.
	group := podGroup("pg-train-1", "department.kai-faculty.kai-a", "inference", "non-preemptible", map[string]string{"kai.scheduler/queue": "another.project"})
	if err := grouper.Create(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // only the podgrouper may delete it; the test context has ended
		if err := grouper.Delete(context.Background(), group); err != nil {
			t.Error(err)
		}
	})
	t.Run("a group is in the project's queue", func(t *testing.T) {
		if diff := cmp.Diff(podGroupState{"kai-lab.kai-a", "kai-a", "sluice-inference", "non-preemptible"}, podGroupStateOf(group)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
	applyJSON(t, grouper, pod, `{"metadata":{"annotations":{"pod-group-name":"pg-train-1"}}}`)

	t.Run("users cannot bypass the queue", func(t *testing.T) { testKAIBypassAttempts(t, user, group) })

	t.Run("a group has the class of its pods", func(t *testing.T) {
		// The scheduler observes the pod and writes the status.
		applyStatusJSON(t, grouper, group, `{"status":{"schedulingConditions":[]}}`)
		waitForPodGroup(t, group, podGroupState{"kai-lab.kai-a", "kai-a", "sluice-train", "preemptible"})
		// The podgrouper repeatedly writes the values of the owner.
		applyJSON(t, grouper, group, `{"spec":{"priorityClassName":"inference","preemptibility":"non-preemptible"}}`)
		waitForPodGroup(t, group, podGroupState{"kai-lab.kai-a", "kai-a", "sluice-train", "preemptible"})
	})

	t.Run("a group without room moves to the next pool", func(t *testing.T) {
		applyStatusJSON(t, grouper, group, `{"status":{"schedulingConditions":[{"type":"UnschedulableOnNodePool","nodePool":"kai-a","status":"True","transitionID":"1"}]}}`)
		waitForPodGroup(t, group, podGroupState{"kai-lab.kai-b", "kai-b", "sluice-train", "preemptible"})
		if err := refresh(t, pod); err != nil {
			t.Fatal(err)
		}
		if pod.Labels[v1alpha1.LabelNodePool] != "kai-b" || pod.Labels["kai.scheduler/queue"] != "kai-lab.kai-b" {
			t.Errorf("the pod's labels are %v", pod.Labels)
		}
		// The podgrouper keeps the queue of the group.
		applyJSON(t, grouper, group, `{"spec":{"minMember":1},"metadata":{"labels":{"kai.scheduler/node-pool":"kai-b"}}}`)
		waitForPodGroup(t, group, podGroupState{"kai-lab.kai-b", "kai-b", "sluice-train", "preemptible"})
	})

	t.Run("the project's status has its pools and KAI's reason", func(t *testing.T) {
		// As KAI-Scheduler 0.17.0 writes it: see lifecycle/quota/pending/testdata.
		applyStatusJSON(t, grouper, group, `{"status":{"schedulingConditions":[{"type":"UnschedulableOnNodePool","nodePool":"kai-b","status":"True","transitionID":"2",
"reasons":[{"reason":"OverLimit","message":"kai-faculty quota has reached the allowable limit of GPUs. Limit is 4 GPUs, currently 3.75 GPUs allocated and workload requested 0.5 GPUs",
"details":{"queueDetails":{"name":"department.kai-faculty.kai-b"}}}]}]}}`)
		project := newProject(kaiLab)
		eventually(t, func() error {
			if err := refresh(t, project); err != nil {
				return err
			}
			condition := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionPending)
			if condition == nil || !strings.Contains(condition.Message, "(1 pod, 0.5 of a GPU, since ") ||
				!strings.Contains(condition.Message, "department kai-faculty has reached its limit of GPUs in node pool kai-b") {
				return fmt.Errorf("condition %+v", condition)
			}
			if got := project.Status.PoolSummary; got != "kai-a 0/2, kai-b 0/2" {
				return unexpectedState("allocated of limit is kai-a 0/2, kai-b 0/2", got)
			}
			return nil
		})
	})

	// KAI-Scheduler marks preempted pods in kai-a only: what invariant 11 says of a node pool's
	// status, and what a Job's author has to know.
	t.Run("a Job that a preemption ends gets a warning", func(t *testing.T) {
		for pool, want := range map[string]bool{"kai-a": false, "kai-b": true} {
			eventually(t, func() error {
				received := warningsOfJob(t, pool)
				if got := strings.Contains(received, "with backoffLimit 0 this Job fails at the first preemption"); got != want {
					return fmt.Errorf("in node pool %s: warnings %s", pool, received)
				}
				return nil
			})
		}
	})

	t.Run("only one controller manages the queues", func(t *testing.T) {
		ns := newNamespace(kaiLab)
		applyJSON(t, sharedCluster.adminClient, ns, `{"metadata":{"labels":{"kai/project":"kai-lab"}}}`)
		eventually(t, func() error {
			return checkRejected(user.Create(t.Context(), kaiPod("both", nil), client.DryRunAll), "is managed by kai-resource-management")
		})
		applyJSON(t, sharedCluster.adminClient, ns, `{"metadata":{"labels":{"kai/project":null}}}`)
		eventually(t, func() error { return user.Create(t.Context(), kaiPod("one", nil), client.DryRunAll) })
	})
}

// warningsOfJob returns the warnings about a Job without retries in a node pool.
func warningsOfJob(t *testing.T, pool string) string {
	t.Helper()
	received := &warnings{}
	config := rest.CopyConfig(sharedCluster.config)
	config.WarningHandler = received
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := kaiPod("once", map[string]string{v1alpha1.AnnotationNodePools: pool})
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: kaiLab, Name: "once"}, Spec: batchv1.JobSpec{
		BackoffLimit: new(int32),
		Template:     corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations}, Spec: pod.Spec},
	}}
	if _, err := clientset.BatchV1().Jobs(kaiLab).Create(t.Context(), job, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(received.sorted(), "\n")
}

// testKAIBypassAttempts runs as a user with all rights in the namespace.
func testKAIBypassAttempts(t *testing.T, user client.Client, group *unstructured.Unstructured) {
	patch := func(object client.Object, body string, subresource ...string) func() error {
		object, _ = object.DeepCopyObject().(client.Object)
		raw := client.RawPatch(types.MergePatchType, []byte(body))
		if len(subresource) > 0 {
			return func() error { return user.Status().Patch(t.Context(), object, raw, client.DryRunAll) }
		}
		return func() error { return user.Patch(t.Context(), object, raw, client.DryRunAll) }
	}
	createAttempt := func(object client.Object) func() error {
		return func() error { return user.Create(t.Context(), object, client.DryRunAll) }
	}
	for name, tc := range map[string]struct {
		attempt func() error
		message string
	}{
		"a group in another queue": {patch(group, `{"spec":{"queue":"department.kai-faculty.kai-b"}}`), "PodGroups are written by KAI-Scheduler alone"},
		"a group's status":         {patch(group, `{"status":{"schedulingConditions":[]}}`, "status"), "PodGroups are written by KAI-Scheduler alone"},
		"the group deleted":        {func() error { return user.Delete(t.Context(), group.DeepCopy(), client.DryRunAll) }, "PodGroups are written by KAI-Scheduler alone"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkRejected(tc.attempt(), tc.message); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("another scheduler, a preemptibility and all GPUs are corrected", func(t *testing.T) {
		p := kaiPod("e", nil, "kai.scheduler/preemptibility", "non-preemptible", func(p *corev1.Pod) {
			p.Spec.SchedulerName = "default-scheduler-of-mine"
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side", Image: "any", Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}})
		})
		if err := createAttempt(p)(); err != nil {
			t.Fatal(err)
		}
		got := []string{p.Spec.SchedulerName, p.Labels["kai.scheduler/preemptibility"], p.Spec.Containers[1].Env[0].Value}
		if diff := cmp.Diff([]string{"kai-scheduler", "preemptible", "void"}, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// installKAI creates the custom resource definitions and the configuration of KAI-Scheduler.
func installKAI(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("testdata/kai/*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatalf("found the definitions %v: %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &definition.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		create(t, definition)
	}
	config := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": map[string]any{"name": "kai-config"},
		"spec": map[string]any{"admission": map[string]any{"gpuSharing": true, "mutatingWebhookConfigurationName": "zz-kai-admission"}},
	}}
	eventually(t, func() error { return sharedCluster.adminClient.Create(t.Context(), config.DeepCopy()) })
	// The scheduler of kai-a marks the pods that it preempts; that of kai-b does not.
	for _, shard := range []map[string]any{
		{"partitionLabelValue": "kai-a", "args": map[string]any{"update-pod-eviction-condition": "true"}},
		{"partitionLabelValue": "kai-b"},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": map[string]any{"generateName": "shard-"}, "spec": shard,
		}}
		eventually(t, func() error { return sharedCluster.adminClient.Create(t.Context(), object) })
	}
}

// createKAILab creates two node pools of KAI, a department and a project with quotas in
// both, and the rights of the users of the test.
func createKAILab(t *testing.T) {
	t.Helper()
	quota := func(guaranteed, limit string) []v1alpha1.PoolQuota {
		gpu := v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}
		return []v1alpha1.PoolQuota{{Name: "kai-a", GPU: gpu}, {Name: "kai-b", GPU: gpu}}
	}
	for name, status := range map[string]metav1.ConditionStatus{"kai-a": metav1.ConditionTrue, "kai-b": metav1.ConditionFalse} {
		p, reason := newNodePool(name), ""
		if status == metav1.ConditionFalse {
			reason = v1alpha1.ReasonRecommendationsMissing
		}
		p.Spec.Scheduler, p.Spec.Sharing = v1alpha1.SchedulerKAI, v1alpha1.SharingKAI
		p.Spec.NodeSelector = map[string]string{"kai.scheduler/node-pool": name}
		create(t, p)
		eventually(t, func() error {
			if err := refresh(t, p); err != nil {
				return err
			}
			return checkCondition(p.Status.Conditions, v1alpha1.ConditionRequirementsMet, status, reason)
		})
	}
	create(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "kai-faculty"},
		Spec: v1alpha1.DepartmentSpec{
			Contacts:  []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}},
			NodePools: quota("2", "4"),
		},
	})
	create(t, newProject(kaiLab, func(p *v1alpha1.Project) {
		p.Spec.Department, p.Spec.NodePools = "kai-faculty", quota("1", "2")
	}))
	eventually(t, func() error {
		n := newNamespace(kaiLab)
		if err := refresh(t, n); err != nil {
			return err
		}
		if n.Labels[v1alpha1.LabelProject] != kaiLab {
			return unexpectedState("the namespace has the project label", n.Labels)
		}
		return nil
	})
	create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kai-everything"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"scheduling.run.ai"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "pods/status", "configmaps"}, Verbs: []string{"*"}},
	}})
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kai-everything"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kai-everything"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: "User", Name: podGrouper}, {APIGroup: rbacv1.GroupName, Kind: "User", Name: eve},
		},
	})
}

// kaiClient returns a client that impersonates the user. It waits until the user may list
// PodGroups.
func kaiClient(t *testing.T, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kaigroup.Kind)
		return c.List(t.Context(), list, client.InNamespace(kaiLab))
	})
	return c
}

// kaiPod returns a pod with half a GPU. Options are pairs of label key and value, of which
// an empty key is ignored, and functions that change the pod.
func kaiPod(name string, annotations map[string]string, options ...any) *corev1.Pod {
	return newPod(kaiLab, name, func(p *corev1.Pod) {
		p.Annotations["gpu-fraction"] = "0.5"
		for key, value := range annotations {
			p.Annotations[key] = value
		}
		for i := 0; i < len(options); i++ {
			switch option := options[i].(type) {
			case string:
				if value, _ := options[i+1].(string); option != "" {
					p.Labels[option] = value
				}
				i++
			case func(*corev1.Pod):
				option(p)
			}
		}
	})
}

func podGroup(name, queue, class, preemptibility string, labels map[string]string) *unstructured.Unstructured {
	group := newKAIObject("PodGroup", "v2alpha2")
	group.SetNamespace(kaiLab)
	group.SetName(name)
	group.SetLabels(labels)
	group.Object["spec"] = map[string]any{
		"minMember": int64(1), "queue": queue, "priorityClassName": class, "preemptibility": preemptibility,
		"subGroups": []any{}, "topologyConstraint": map[string]any{},
	}
	return group
}

func newKAIObject(kind, version string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion("scheduling.run.ai/" + version)
	object.SetKind(kind)
	return object
}

// queueSpec returns the spec of a queue with these numbers of GPUs.
func queueSpec(owner, parent string, quota, limit int64) map[string]any {
	unlimited := func() map[string]any {
		return map[string]any{"quota": int64(-1), "limit": int64(-1), "overQuotaWeight": int64(1)}
	}
	spec := map[string]any{"displayName": owner, "resources": map[string]any{
		"gpu": map[string]any{"quota": quota, "limit": limit, "overQuotaWeight": int64(1)}, "cpu": unlimited(), "memory": unlimited(),
	}}
	if parent != "" {
		spec["parentQueue"] = parent
	}
	return spec
}

// podGroupState contains the fields of a PodGroup that decide where its pods run and which
// pods they may preempt.
type podGroupState struct{ Queue, Shard, Class, Preemptibility string }

func podGroupStateOf(group *unstructured.Unstructured) podGroupState {
	field := func(name string) string {
		found, _, _ := unstructured.NestedString(group.Object, "spec", name)
		return found
	}
	return podGroupState{field("queue"), group.GetLabels()["kai.scheduler/node-pool"], field("priorityClassName"), field("preemptibility")}
}

func waitForPodGroup(t *testing.T, group *unstructured.Unstructured, want podGroupState) {
	t.Helper()
	eventually(t, func() error {
		if err := refresh(t, group); err != nil {
			return err
		}
		if diff := cmp.Diff(want, podGroupStateOf(group)); diff != "" {
			return fmt.Errorf("PodGroup (-want +got)\n%s", diff)
		}
		return nil
	})
}

func applyJSON(t *testing.T, as client.Client, object client.Object, body string) {
	t.Helper()
	if err := as.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
}

func applyStatusJSON(t *testing.T, as client.Client, object client.Object, body string) {
	t.Helper()
	if err := as.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
}
