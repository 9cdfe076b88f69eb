// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

// testUninstallHook: `helm uninstall` runs `sluice uninstall` in a Job while the webhook's pods do not run. A Job that fails ends
// the removal before Helm has deleted anything; the next one continues. Nothing that is not Sluice's is lost.
func testUninstallHook(t *testing.T) {
	c, admin, _ := startEmpty(t)
	work := createWork(t, admin)
	logs := runHookPods(t, c.Kubeconfig(), admin)
	run := func(arguments ...string) error {
		output, err := helm(t, append(arguments, "--kubeconfig", c.Kubeconfig(), "-n", v1alpha1.SystemNamespace)...)
		t.Logf("helm %s: %v\n%s", strings.Join(arguments, " "), err, output)
		return err
	}
	t.Cleanup(func() { removeAll(t, admin, buildObjects(t, manifests.Production)) })
	// The node of the test has no kubelet that reports, so that Kubernetes taints it.
	if err := run("install", "sluice", chartFolder, "--create-namespace", "--set", "tolerations[0].operator=Exists,gpuPodsOutside=Warn"); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	enforce := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := admin.Patch(t.Context(), namespace, enforce); err != nil {
		t.Fatal(err)
	}
	expectPods(t, admin, "webhook")
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}}
	annotate := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.org/changed":"yes"}}}`))
	clustertest.Eventually(t, func() error {
		if err := admin.Patch(t.Context(), project.DeepCopy(), annotate, client.DryRunAll); err == nil {
			return errors.New("the webhook does not refuse requests while its pods do not run")
		}
		return nil
	})

	before := clustertest.TakeSnapshot(t, c.Config())
	if dryRun := logs(); dryRun != "" {
		t.Errorf("the hook ran before the removal:\n%s", dryRun)
	}

	allow := denyRemovalOfWebhooks(t, admin)
	if err := run("uninstall", "sluice"); err == nil || !strings.Contains(err.Error(), "sluice-uninstall") {
		t.Errorf("the hook cannot remove the webhooks, and Helm reports %v", err)
	}
	if log := logs(); !strings.Contains(log, "keep-webhooks") || strings.Contains(log, "admission policies:") {
		t.Errorf("the log of the Job does not say why it failed:\n%s", log)
	}
	var deployment appsv1.Deployment
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "webhook"}, &deployment); err != nil {
		t.Errorf("the failed hook, and Helm after it, removed something: %v", err)
	}
	var job batchv1.Job
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "sluice-uninstall"}, &job); err != nil || job.Status.Failed == 0 {
		t.Errorf("the failed Job has the status %+v: %v", job.Status, err)
	}
	allow()
	if err := run("uninstall", "sluice"); err != nil {
		t.Fatalf("%v\n%s", err, logs())
	}
	if log := logs(); !strings.Contains(log, "webhook configurations, which would refuse requests") || !strings.Contains(log, "What stays:") {
		t.Errorf("the log of the Job:\n%s", log)
	}
	work.check(t, admin)
	clustertest.Eventually(t, func() error { // Helm waits for no namespace
		err := admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.AgentNamespace}, &corev1.Namespace{})
		if err == nil {
			err = errors.New("the agent's namespace exists")
		}
		return client.IgnoreNotFound(err)
	})
	after := clustertest.TakeSnapshot(t, c.Config())
	for _, node := range []clustertest.Snapshot{before, after} { // the test's node has no kubelet, and Kubernetes taints it
		unstructured.RemoveNestedField(node["Node /system-1"].Object, "spec", "taints")
	}
	before.CompareAfterRemoval(t, after, removedByHelm)
	for _, gone := range []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "webhook"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sluice-uninstall"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sluice-uninstall"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "sluice-uninstall"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "sluice-uninstall"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "uninstall"}},
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "sluice"}},
	} {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(gone), gone); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is left: %v", gone, gone.GetName(), err)
		}
	}
}

// removedByHelm reports whether Helm itself deletes an object after the hook: those of the release, but for what docs/platform/uninstall.md
// says stays, the addresses of its Services, its record of the release, and what is in the agent's namespace, which the chart has.
func removedByHelm(o *unstructured.Unstructured) bool {
	isReleased := o.GetAnnotations()["meta.helm.sh/release-name"] == "sluice" && !keptByHelm(o)
	return isReleased || o.GetKind() == "IPAddress" || o.GetKind() == "Secret" && o.GetLabels()["owner"] == "helm" || o.GetNamespace() == v1alpha1.AgentNamespace
}

// work is what the removal keeps.
type work []client.Object

// createWork creates objects of Sluice and of users as lifecycle leaves them, before a webhook or admission policy exists.
func createWork(t *testing.T, admin client.Client) (objects work) {
	t.Helper()
	for _, crd := range buildObjects(t, "crds") {
		crd = crd.DeepCopy()
		crd.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
		crd.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "sluice", "meta.helm.sh/release-namespace": v1alpha1.SystemNamespace})
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []struct {
		name string
		into client.Object
	}{{"project", &v1alpha1.Project{}}, {"nodepool", &v1alpha1.NodePool{}}, {"gpunode", &v1alpha1.GPUNode{}}} {
		raw, err := os.ReadFile("../e2e/badinput/valid/" + file.name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(raw, file.into); err != nil {
			t.Fatal(err)
		}
		file.into.SetFinalizers([]string{"example.org/mine", v1alpha1.FinalizerProject})
		objects = append(objects, file.into)
	}
	// Its pods stay pending: the scheduler binds none in the middle of the test.
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}, NodeSelector: map[string]string{"example.org/none": "has-it"}}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "lab", Name: name, Labels: map[string]string{"app": name}}
	}
	announced := &corev1.Pod{ObjectMeta: meta("announced"), Spec: pod}
	announced.Annotations = map[string]string{v1alpha1.AnnotationEndsAt: "2026-01-01T00:00:00Z"}
	quota := &corev1.ResourceQuota{ObjectMeta: meta("sluice")}
	quota.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{v1alpha1.LabelProject: "lab", "team": "a"}}}
	all := append(slices.Clone(objects), namespace, announced, quota,
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("data"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
		&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: pod},
		}})
	for _, object := range all {
		clustertest.Eventually(t, func() error { return client.IgnoreAlreadyExists(admin.Create(t.Context(), object)) })
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			_ = admin.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
			_ = admin.Delete(ctx, object)
		})
		if object != client.Object(quota) && !slices.Contains(objects, object) {
			objects = append(objects, object)
		}
	}
	return objects
}

// check fails the test unless each object is as before, without what Sluice wrote.
func (w work) check(t *testing.T, admin client.Client) {
	t.Helper()
	for _, was := range w {
		is := was.DeepCopyObject().(client.Object)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(was), is); err != nil || is.GetUID() != was.GetUID() || is.GetDeletionTimestamp() != nil {
			t.Errorf("%T %s is not as before: %v", was, was.GetName(), err)
			continue
		}
		if slices.ContainsFunc(is.GetFinalizers(), func(name string) bool { return strings.HasPrefix(name, v1alpha1.Group+"/") }) {
			t.Errorf("%T %s has the finalizers %v", was, was.GetName(), is.GetFinalizers())
		}
		if len(was.GetFinalizers()) > 0 && !slices.Contains(is.GetFinalizers(), was.GetFinalizers()[0]) {
			t.Errorf("%T %s has lost a finalizer: %v", was, was.GetName(), is.GetFinalizers())
		}
		switch is := is.(type) {
		case *v1alpha1.GPUNode:
			if !equality.Semantic.DeepEqual(is.Spec, was.(*v1alpha1.GPUNode).Spec) {
				t.Errorf("the MIG layout changed: %+v", is.Spec)
			}
		case *corev1.Namespace:
			if is.Labels[v1alpha1.LabelProject] != "" || is.Labels["team"] != "a" {
				t.Errorf("labels of the namespace: %v", is.Labels)
			}
		case *corev1.Pod:
			if is.Annotations[v1alpha1.AnnotationEndsAt] != "" {
				t.Errorf("annotations of the pod: %v", is.Annotations)
			}
		}
	}
}

// denyRemovalOfWebhooks keeps every client from deleting webhook configurations, until allow is called.
func denyRemovalOfWebhooks(t *testing.T, admin client.Client) (allow func()) {
	t.Helper()
	fail := admissionv1.Fail
	meta := metav1.ObjectMeta{Name: "keep-webhooks"}
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule: admissionv1.Rule{
			APIGroups: []string{"admissionregistration.k8s.io"}, APIVersions: []string{"*"},
			Resources: []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
		},
	}}
	objects := []client.Object{
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail, Validations: []admissionv1.Validation{{Expression: "false"}},
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
		}},
	}
	for _, object := range objects {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	until := func(denied bool) {
		clustertest.Eventually(t, func() error {
			webhooks := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}}
			if err := admin.Delete(context.WithoutCancel(t.Context()), webhooks, client.DryRunAll); (err != nil) != denied {
				return fmt.Errorf("the deletion of webhooks is denied: %w, want %v", err, denied)
			}
			return nil
		})
	}
	remove := func() {
		for _, object := range objects {
			if err := client.IgnoreNotFound(admin.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(remove)
	until(true)
	return func() { remove(); until(false) }
}

// runHookPods runs the pods of Sluice's namespace that have the image sluice on a node of the test. The returned function
// returns the logs of the hook's pods.
func runHookPods(t *testing.T, kubeconfig string, admin client.Client) (logs func() string) {
	t.Helper()
	bin := t.TempDir()
	if err := clustertest.BuildPrograms(t.Context(), bin, "sluice", "sluice-lab"); err != nil {
		t.Fatal(err)
	}
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("50")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "system-1", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	if err := admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), node) })
	node.Status = corev1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}}
	node.ResourceVersion = "" // controllers change the new node, too
	if err := admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lab := filepath.Join(bin, "sluice-lab")
	pods, err := clustertest.StartProcess(t.Context(), filepath.Join(dir, "pods.log"), nil, lab, "simulate", "pods",
		"--kubeconfig", kubeconfig, "--namespace", v1alpha1.SystemNamespace, "--dir", dir, "--program", "sluice="+filepath.Join(bin, "sluice"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Stop(); err != nil {
			t.Error(err)
		}
	})
	return func() string {
		var text strings.Builder
		files, _ := filepath.Glob(filepath.Join(dir, "logs", "sluice-uninstall*.log"))
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Error(err)
			}
			text.Write(raw)
		}
		return text.String()
	}
}

// The hook may list each kind of workload. Its pods comply with the level restricted, and nothing selects them.
func TestUninstallHook(t *testing.T) {
	objects, err := manifests.BuildWith(manifests.Production, manifests.Uninstall)
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	findObject(t, objects, "ClusterRole", "sluice-uninstall", &role)
	for _, kind := range workloadkind.All() {
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, kind.Group) && slices.Contains(r.Resources, kind.Resource) && slices.Contains(r.Verbs, "list")
		}) {
			t.Errorf("the hook may not list %s.%s", kind.Resource, kind.Group)
		}
	}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Verbs, "delete") && slices.Contains(rule.Resources, "deployments") {
			t.Errorf("the hook may delete Deployments of all namespaces: %v", rule)
		}
	}
	for _, object := range objects {
		if policy, isHook := object.GetAnnotations()["helm.sh/hook-delete-policy"]; isHook && object.GetKind() != "Job" && policy != "before-hook-creation,hook-succeeded,hook-failed" {
			t.Errorf("%s may stay after the hook: %s", identity(object), policy)
		}
	}
	var job batchv1.Job
	findObject(t, objects, "Job", "sluice-uninstall", &job)
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	pod := podTemplate{"Job", job.Name, job.Namespace, job.Spec.Template.ObjectMeta, job.Spec.Template.Spec}
	if refused := violations(evaluator, restricted, pod); len(refused) > 0 {
		t.Errorf("Pod Security refuses the hook: %q", refused)
	}
	if deadline := time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second; deadline >= 5*time.Minute {
		t.Errorf("the Job may run for %v, and Helm waits five minutes", deadline)
	}
	for _, object := range objects {
		path := map[string][]string{"Service": {"spec", "selector"}, "PodDisruptionBudget": {"spec", "selector", "matchLabels"}}[object.GetKind()]
		selector, found, _ := unstructured.NestedStringMap(object.Object, path...)
		if len(path) > 0 && (!found || labels.SelectorFromSet(selector).Matches(labels.Set(job.Spec.Template.Labels))) {
			t.Errorf("%s selects the pods of the hook", identity(object))
		}
	}
}
