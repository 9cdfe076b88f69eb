// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/uninstall"
)

// The documentation has the list of what stays that the command prints.
func TestDocumentationListsWhatStays(t *testing.T) {
	page, err := os.ReadFile("../../../docs/platform/uninstall.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## What stays\n\n")
	table, _, _ := strings.Cut(section, "\n\n")
	rows := []string{"| what | why |", "|---|---|"}
	for _, r := range uninstall.Remains {
		rows = append(rows, fmt.Sprintf("| %s | %s |", r.What, r.Why))
	}
	if want := strings.Join(rows, "\n"); table != want {
		t.Errorf("the page has\n%s\nwant\n%s", table, want)
	}
}

var managed = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}

// objects is a cluster with Sluice and work.
func objects() []client.Object {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}, Spec: corev1.PodSpec{NodeName: "dgx-1"}}
		change(p)
		return p
	}
	milli := corev1.ResourceList{v1alpha1.ResourceGPUMilli: resource.MustParse("8000"), "nvidia.com/gpu": resource.MustParse("8")}
	return []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sluice-pause", Labels: managed}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "sluice-notices"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "lifecycle"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "webhook"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-agent", Name: "gpuagent"}},
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "lab", Finalizers: []string{"example.org/mine", v1alpha1.FinalizerProject}}},
		&v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx", Finalizers: []string{v1alpha1.FinalizerRendered}}},
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "sluice", Labels: managed}},
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "own"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{v1alpha1.LabelProject: "lab", v1alpha1.LabelQueued: "true", "team": "a"}}},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "dgx-1", Labels: map[string]string{v1alpha1.GPUClientLabels()[0]: v1alpha1.GPUClientPaused, v1alpha1.LabelNodePool: "dgx"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: v1alpha1.TaintRepartitioning, Effect: corev1.TaintEffectNoSchedule}, {Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}},
			Status:     corev1.NodeStatus{Capacity: milli, Allocatable: milli},
		},
		pod("announced", func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationPreemptAt: "2026-01-01T00:00:00Z", v1alpha1.AnnotationGPU: "1"}
		}),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "lifecycle"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "sluice-system", Name: "lifecycle"}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "people"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "lifecycle"}}},
		&batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "stopped", Annotations: map[string]string{v1alpha1.AnnotationStoppedUntil: "2026-01-01T00:00:00Z"}},
			Spec:       batchv1.JobSpec{Suspend: ptr.To(true)},
		},
		&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "certificates"}},
	}
}

// newUninstaller returns an uninstaller of a cluster. The write with the number crashAt fails, behind its effect.
func newUninstaller(t *testing.T, crashAt int, more ...client.Object) (*uninstall.Uninstaller, *bytes.Buffer, *int) {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	openShift := schema.GroupVersion{Group: "security.openshift.io", Version: "v1"}
	mapper := meta.NewDefaultRESTMapper(append(scheme.PrioritizedVersionsAllGroups(), openShift))
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScope(meta.RESTScopeRoot)
		switch kind.Kind {
		case "Pod", "ResourceQuota", "LimitRange", "Deployment", "DaemonSet", "RoleBinding", "Role", "Job", "ReplicaSet", "StatefulSet", "CronJob":
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(kind, scope)
	}
	mapper.Add(openShift.WithKind("SecurityContextConstraints"), meta.RESTScopeRoot)
	writes := new(int)
	write := func(do func() error) error {
		*writes++
		if err := do(); err != nil {
			return err
		}
		if *writes == crashAt {
			return errCrash
		}
		return nil
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(append(objects(), more...)...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, options...) })
		},
	}).Build()
	out := &bytes.Buffer{}
	return &uninstall.Uninstaller{Client: c, Mapper: mapper, Out: out, Timeout: 5 * time.Minute, PollInterval: time.Millisecond}, out, writes
}

var errCrash = errors.New("the process ended here")

// After a crash at any write the next run does the rest, and a further run nothing. What others own stays.
func TestRunAfterACrashAtEachWrite(t *testing.T) {
	for crashAt := 1; ; crashAt++ {
		u, out, writes := newUninstaller(t, crashAt)
		err := u.Run(t.Context())
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		ended := err == nil
		if err := u.Run(t.Context()); err != nil {
			t.Fatalf("after a crash at write %d: %v", crashAt, err)
		}
		requireUninstalled(t, u.Client)
		before := *writes
		out.Reset()
		if err := u.Run(t.Context()); err != nil || *writes != before || !strings.HasPrefix(out.String(), "What stays:") {
			t.Fatalf("a further run: %v, %d writes: %s", err, *writes-before, out)
		}
		if command := "Job lab/stopped: kubectl patch"; !strings.Contains(out.String(), command) {
			t.Errorf("the output lacks %q: %s", command, out)
		}
		if ended {
			if crashAt < 15 {
				t.Errorf("only %d writes", crashAt)
			}
			return
		}
	}
}

func requireUninstalled(t *testing.T, c client.Client) {
	t.Helper()
	for _, gone := range []client.Object{objects()[0], objects()[1], objects()[3], objects()[4], objects()[5], objects()[7], objects()[10], objects()[15], objects()[18]} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(gone), gone); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%T %s is left: %v", gone, gone.GetName(), err)
		}
	}
	for _, kept := range []client.Object{objects()[2], objects()[6], objects()[8], objects()[11], objects()[16], objects()[17]} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
			t.Errorf("%T %s is gone: %v", kept, kept.GetName(), err)
		}
		if project, ok := kept.(*v1alpha1.Project); ok && (len(project.Finalizers) != 1 || project.Finalizers[0] != "example.org/mine") {
			t.Errorf("finalizers %v", project.Finalizers)
		}
	}
	var namespace corev1.Namespace
	var node corev1.Node
	var pod corev1.Pod
	for key, object := range map[client.ObjectKey]client.Object{{Name: "lab"}: &namespace, {Name: "dgx-1"}: &node, {Namespace: "lab", Name: "announced"}: &pod} {
		if err := c.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
	}
	if len(namespace.Labels) != 1 || namespace.Labels["team"] != "a" {
		t.Errorf("labels of the namespace: %v", namespace.Labels)
	}
	if len(node.Spec.Taints) != 1 || node.Labels[v1alpha1.GPUClientLabels()[0]] != "true" || node.Labels[v1alpha1.LabelNodePool] != "dgx" ||
		len(node.Status.Capacity) != 1 || len(node.Status.Allocatable) != 1 {
		t.Errorf("node: %v, %v, %v", node.Spec.Taints, node.Labels, node.Status)
	}
	if len(pod.Annotations) != 1 || pod.Annotations[v1alpha1.AnnotationGPU] != "1" {
		t.Errorf("annotations of the pod: %v", pod.Annotations)
	}
}

// The plan alone writes nothing, and names what it would remove.
func TestDryRunWritesNothing(t *testing.T) {
	u, out, writes := newUninstaller(t, 0)
	u.DryRun, u.DeleteData = true, true
	if err := u.Run(t.Context()); err != nil || *writes != 0 {
		t.Fatalf("%v, %d writes", err, *writes)
	}
	for _, text := range []string{"delete Deployment sluice-system/lifecycle", "delete CronJob sluice-system/certificates", "remove the finalizer of Project lab", "remove the GPU quota unit from node dgx-1"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the plan lacks %q:\n%s", text, out)
		}
	}
}

// The GPU quota unit stays on the nodes while a pending pod or an unfinished Job requests it.
func TestCapacityStaysWhileItIsRequested(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{v1alpha1.ResourceGPUMilli: resource.MustParse("1000")},
	}}}}
	for name, waiting := range map[string]client.Object{
		"Pod lab/pending": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "pending"}, Spec: spec, Status: corev1.PodStatus{Phase: corev1.PodPending}},
		"Job lab/queued":  &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "queued"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}},
	} {
		u, out, _ := newUninstaller(t, 0, waiting)
		if err := u.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := name + " requests it"; !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
		var node corev1.Node
		if err := u.Client.Get(t.Context(), client.ObjectKey{Name: "dgx-1"}, &node); err != nil || len(node.Status.Capacity) != 2 {
			t.Errorf("%s: capacity %v: %v", name, node.Status.Capacity, err)
		}
	}
}

// The pod of a node that is down stays Terminating for good: its kubelet cannot report that it ended. The removal goes on
// without it, and waits for a pod of a node that runs.
func TestRunWithPodsOfNodesThatAreDown(t *testing.T) {
	for name, tc := range map[string]struct {
		component string // empty: gpuagent
		node      string
		status    corev1.ConditionStatus
		deleting  bool
		wantError string
	}{
		"terminating, the kubelet is silent":  {node: "dgx-2", status: corev1.ConditionUnknown, deleting: true},
		"terminating, the node is removed":    {node: "dgx-3", deleting: true},
		"of the Job that makes certificates":  {component: "certificates", node: "dgx-2", status: corev1.ConditionTrue},
		"terminating, the node runs":          {node: "dgx-2", status: corev1.ConditionTrue, deleting: true, wantError: "still waiting for the end of pod sluice-agent/gpuagent-x"},
		"not terminating, the node is silent": {node: "dgx-2", status: corev1.ConditionUnknown, wantError: "still waiting for the end of pod sluice-agent/gpuagent-x"},
	} {
		agent := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "sluice-agent", Name: "gpuagent-x", Labels: map[string]string{"app.kubernetes.io/name": "sluice-" + cmp.Or(tc.component, "gpuagent")}, Finalizers: []string{"example.org/stays"},
			},
			Spec: corev1.PodSpec{NodeName: tc.node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-2"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.status}},
		}}
		u, out, _ := newUninstaller(t, 0, agent, node)
		if tc.wantError != "" {
			u.Timeout = 50 * time.Millisecond // what the uninstaller waits for does not come
		}
		if tc.deleting {
			if err := u.Client.Delete(t.Context(), agent); err != nil {
				t.Fatal(err)
			}
		}
		err := u.Run(t.Context())
		if tc.wantError != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantError) {
				t.Errorf("%s: %v, want %s", name, err, tc.wantError)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := "sluice-agent/gpuagent-x: node " + tc.node + " is not ready"; tc.component == "" && !strings.Contains(out.String(), want) {
			t.Errorf("%s: the output lacks %q:\n%s", name, want, out)
		}
		requireUninstalled(t, u.Client)
	}
}

// API servers enforce a deleted admission policy for about another second, and kubelets and controllers write the same
// objects. Both pass, and the step is repeated. Another refusal is an error.
func TestRunRepeatsStepsWhoseWritesWereRefused(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	denied := apierrors.NewForbidden(namespaces, "lab", errors.New("ValidatingAdmissionPolicy 'sluice-namespace-labels' with binding 'sluice-namespace-labels' denied request: metadata.labels"))
	for name, tc := range map[string]struct {
		refusal error
		ends    bool
	}{
		"a conflict":                        {apierrors.NewConflict(namespaces, "lab", errors.New("the object has been modified")), true},
		"an admission policy of Sluice":     {denied, true},
		"missing rights":                    {apierrors.NewForbidden(namespaces, "lab", errors.New("cannot patch")), false},
		"an admission policy of the others": {apierrors.NewForbidden(namespaces, "lab", errors.New("ValidatingAdmissionPolicy 'other' with binding 'other' denied request: x")), false},
	} {
		u, _, _ := newUninstaller(t, 0)
		refusals := 0
		inner, ok := u.Client.(client.WithWatch)
		if !ok {
			t.Fatal("the client cannot be intercepted")
		}
		u.Client = interceptor.NewClient(inner, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
				if o.GetObjectKind().GroupVersionKind().Kind == "Namespace" && refusals < 3 {
					refusals++
					return tc.refusal
				}
				return c.Patch(ctx, o, p, options...)
			},
		})
		switch err := u.Run(t.Context()); {
		case tc.ends && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.ends:
			requireUninstalled(t, u.Client)
		case !errors.Is(err, tc.refusal) || refusals != 1:
			t.Errorf("%s: %v after %d attempts", name, err, refusals)
		}
	}
}

// The admission policy of the agent is not among the objects of every installation, and goes as well.
func TestRunRemovesWhatTheAgentBrought(t *testing.T) {
	u, _, _ := newUninstaller(t, 0,
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sluice-gpuagent"}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "sluice-gpuagent"}})
	if err := u.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		if err := u.Client.Get(t.Context(), client.ObjectKey{Name: "sluice-gpuagent"}, gone); !apierrors.IsNotFound(err) {
			t.Errorf("%T is left: %v", gone, err)
		}
	}
}

// OpenShift's constraints name the agent's ServiceAccount and so grant rights without a binding. Those of others stay.
func TestRunRemovesConstraintsOfOpenShift(t *testing.T) {
	constraints := func(name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"})
		o.SetName(name)
		return o
	}
	u, out, _ := newUninstaller(t, 0, constraints("sluice-gpuagent"), constraints("privileged"))
	if err := u.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := u.Client.Get(t.Context(), client.ObjectKey{Name: "sluice-gpuagent"}, constraints("")); !apierrors.IsNotFound(err) {
		t.Errorf("the constraints of the agent are left: %v", err)
	}
	if err := u.Client.Get(t.Context(), client.ObjectKey{Name: "privileged"}, constraints("")); err != nil {
		t.Error(err)
	}
	if want := "delete SecurityContextConstraints sluice-gpuagent\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the output lacks %q:\n%s", want, out)
	}
}

// A pod that Kueue holds in a queue that is gone is listed, also if a controller created it: no command on the controller
// releases it.
func TestHeldPodsAreListed(t *testing.T) {
	held := func(name string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, OwnerReferences: owners},
			Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: v1alpha1.GateKueue}}},
		}
	}
	u, out, _ := newUninstaller(t, 0, held("bare"), held("serve-x", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "serve", UID: "1"}))
	if err := u.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Pod lab/bare: create it again without the label kueue.x-k8s.io/queue-name\n",
		"Pod lab/serve-x: remove the label kueue.x-k8s.io/queue-name from the pod template of its controller, if it is there; then kubectl delete pod serve-x -n lab\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

// The bindings of the hook go last, when nothing more needs them, and no binding of that name in a namespace of users does.
func TestHookRightsGoLast(t *testing.T) {
	hook := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "sluice-system", Name: "uninstall"}}
	u, out, _ := newUninstaller(t, 0,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sluice-uninstall"}, Subjects: hook},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-uninstall"}, Subjects: hook},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "sluice-uninstall"}, Subjects: hook})
	if err := u.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	const last = "rights of the uninstall hook:\n  delete RoleBinding sluice-system/sluice-uninstall\n  delete ClusterRoleBinding sluice-uninstall\n"
	if !strings.HasSuffix(out.String(), last) {
		t.Errorf("the output does not end with\n%s\n%s", last, out)
	}
	if err := u.Client.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: "sluice-uninstall"}, &rbacv1.RoleBinding{}); err != nil {
		t.Errorf("a binding of a user is gone: %v", err)
	}
}
