// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// defaultUser creates the pods of the test data, unless a pod names another user.
const defaultUser = "anna@example.org"

// Each pod of the test data has the result that its header and its golden file describe, in
// a dry run and for real. Admitted pods are bound to a node of the right node pool.
func TestPodAdmissionMatchesGoldenFiles(t *testing.T) {
	t.Parallel()
	pools := map[string][]v1alpha1.PoolQuota{
		"whole":  {newPoolQuota("dgx", "2", "4")},
		"slices": {newPoolQuota("dgx-mig", "1", "2")},
		"both":   {newPoolQuota("dgx-mig", "1", "2"), newPoolQuota("dgx", "2", "4")},
	}
	sharedCluster.createDepartment(t, "corpus", newPoolQuota("dgx-mig", "10", "20"), newPoolQuota("dgx", "10", "20"))
	sharedCluster.allowPrivilegedPods(t, "corpus")
	for name, quotas := range pools {
		sharedCluster.createGovernedProject(t, "corpus", "corpus-"+name, quotas...)
	}
	create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "corpus-critical"}, Value: 1_000_000})
	cases := loadPodCases(t)
	users := []string{defaultUser}
	for _, tc := range cases {
		if tc.user != "" {
			users = append(users, tc.user)
		}
	}
	sharedCluster.grantPodAccess(t, "corpus", users...)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			tc.pod.Namespace = "corpus-" + tc.project
			dryRunResult := tc.createPod(t, metav1.DryRunAll)
			text, err := dryRunResult.text()
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.checkHeader(dryRunResult, text); err != nil {
				t.Errorf("%v\n%s", err, text)
				if *update {
					return // a wrong result must not become the golden file
				}
			}
			compareGolden(t, tc.name, text)
			if tc.dryRun != "" {
				return
			}
			result := tc.createPod(t)
			if result.Pod != nil {
				t.Cleanup(func() { sharedCluster.deletePodAndWait(t, result.Pod) })
			}
			if realText, err := result.text(); err != nil || realText != text {
				t.Errorf("in a dry run\n%s\nfor real (%v)\n%s", text, err, realText)
			}
			if result.Pod != nil {
				sharedCluster.waitForBinding(t, result.Pod, tc.pool, tc.milli != "0")
			}
		})
	}
}

// createPod creates the pod as the user of the case.
func (tc podCase) createPod(t *testing.T, dryRun ...string) admissionResult {
	t.Helper()
	received := &warnings{}
	clientset := sharedCluster.impersonate(t, cmp.Or(tc.user, defaultUser), received)
	created, err := clientset.CoreV1().Pods(tc.pod.Namespace).Create(t.Context(), tc.pod.DeepCopy(), metav1.CreateOptions{DryRun: dryRun})
	result := admissionResult{Warnings: received.sorted()}
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			t.Fatalf("create the pod: %v", err)
		}
		result.Refused = err.Error()
		return result
	}
	result.Pod = created
	return result
}

// checkHeader returns an error unless the result matches the header of the pod.
func (tc podCase) checkHeader(result admissionResult, text string) error {
	// A policy that fails to evaluate rejects the pod as well, for the wrong reason.
	for _, unwanted := range append(tc.missing, "could not be evaluated") {
		if strings.Contains(text, unwanted) {
			return fmt.Errorf("the result contains %s", unwanted)
		}
	}
	if tc.outcome == "refused" {
		if result.Pod != nil {
			return unexpectedState("the pod is rejected", "admitted")
		}
		for _, want := range tc.message {
			if !strings.Contains(result.Refused, want) {
				return fmt.Errorf("the rejection does not contain %s", want)
			}
		}
		return nil
	}
	if result.Pod == nil {
		return unexpectedState("the pod is admitted", "rejected")
	}
	p := result.Pod
	pairs := map[string][2]string{ // want, got
		"project":    {"corpus-" + tc.project, p.Labels[v1alpha1.LabelProject]},
		"department": {"corpus", p.Labels[v1alpha1.LabelDepartment]},
		"created by": {cmp.Or(tc.user, defaultUser), p.Annotations[v1alpha1.AnnotationCreatedBy]},
	}
	if tc.workloadType != "" {
		pairs["type"] = [2]string{tc.workloadType, p.Labels[v1alpha1.LabelWorkloadType]}
	}
	if tc.milli != "" {
		pairs["charge"] = [2]string{tc.milli, chargedGPUQuota(p)}
	}
	if tc.timeLimit != "" {
		pairs["time limit"] = [2]string{tc.timeLimit, p.Annotations[v1alpha1.AnnotationTimeLimit]}
	}
	if tc.milli != "0" {
		pairs["pool"] = [2]string{tc.pool, p.Labels[v1alpha1.LabelNodePool]}
		pairs["nodes"] = [2]string{"", nodeAffinityOutsidePool(p, tc.pool)}
	}
	var errs []error
	for name, pair := range pairs {
		if pair[0] != pair[1] {
			errs = append(errs, fmt.Errorf("%s: %q, want %q", name, pair[1], pair[0]))
		}
	}
	return errors.Join(errs...)
}

// chargedGPUQuota returns how many GPU quota units the pod is charged for, over all
// containers. One container has them as request and limit.
func chargedGPUQuota(p *corev1.Pod) string {
	var found []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for name, limit := range c.Resources.Limits {
			if !strings.HasPrefix(string(name), string(v1alpha1.ResourceGPUMilli)) {
				continue
			}
			amount := strconv.FormatInt(limit.Value(), 10)
			if request := c.Resources.Requests[name]; request.Cmp(limit) != 0 {
				amount += " (requests " + request.String() + ")"
			}
			found = append(found, amount)
		}
	}
	if len(found) == 0 {
		return "0"
	}
	return strings.Join(found, " and ")
}

// nodeAffinityOutsidePool lists the node affinity terms that allow a node outside the pool.
// Terms are alternatives, so each must name the pool.
func nodeAffinityOutsidePool(p *corev1.Pod, pool string) string {
	if p.Spec.NodeSelector[v1alpha1.LabelNodePool] == pool {
		return ""
	}
	affinity := p.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return "any"
	}
	var outside []string
	for i, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == v1alpha1.LabelNodePool && r.Operator == corev1.NodeSelectorOpIn && slices.Equal(r.Values, []string{pool})
		}) {
			outside = append(outside, fmt.Sprintf("term %d", i))
		}
	}
	return strings.Join(outside, ", ")
}

// warnings collects the warnings of the API server. It implements rest.WarningHandler.
type warnings struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

func (w *warnings) sorted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.list)
	return slices.Clone(w.list)
}

// impersonate returns a client with the identity of the user.
func (s *sluiceCluster) impersonate(t *testing.T, user string, handler rest.WarningHandler) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	config.WarningHandler = handler
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clientset
}

// grantPodAccess grants the users all rights on pods.
func (s *sluiceCluster) grantPodAccess(t *testing.T, name string, users ...string) {
	t.Helper()
	slices.Sort(users)
	var subjects []rbacv1.Subject
	for _, user := range slices.Compact(users) {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	s.createForTest(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "pods/finalizers"}, Verbs: []string{"*"}}},
	})
	s.createForTest(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   subjects,
	})
	eventually(t, func() error {
		_, err := s.impersonate(t, subjects[len(subjects)-1].Name, rest.NoWarnings{}).CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// newPoolQuota returns a quota in a node pool.
func newPoolQuota(pool, guaranteed, limit string) v1alpha1.PoolQuota {
	return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
}

// createForTest creates the object. In the shared cluster it deletes the object at the end
// of the test.
func (s *sluiceCluster) createForTest(t testing.TB, object client.Object) {
	t.Helper()
	if s == sharedCluster {
		create(t, object)
		return
	}
	s.createObject(t, object)
}

// createDepartment creates a department with a time limit of two days for all workloads.
func (s *sluiceCluster) createDepartment(t testing.TB, name string, quotas ...v1alpha1.PoolQuota) {
	t.Helper()
	s.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: quotas,
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("48h"))}},
		},
	})
}

// allowPrivilegedPods sets Pod Security of the department to privileged, as clusters do
// whose programs need IPC_LOCK. Sluice's own policies then restrict its pods.
func (s *sluiceCluster) allowPrivilegedPods(t testing.TB, name string) {
	t.Helper()
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podSecurity":"privileged"}}`))
	if err := s.adminClient.Patch(t.Context(), department, change); err != nil {
		t.Fatal(err)
	}
}

// createGovernedProject creates a project and waits until its namespace is governed and its
// quota is counted.
func (s *sluiceCluster) createGovernedProject(t testing.TB, department, name string, quotas ...v1alpha1.PoolQuota) {
	t.Helper()
	s.createGoverned(t, newProject(name, func(p *v1alpha1.Project) { p.Spec.Department, p.Spec.NodePools = department, quotas }))
}

// createGoverned creates a project and waits until its quota is in force.
func (s *sluiceCluster) createGoverned(t testing.TB, p *v1alpha1.Project) {
	t.Helper()
	s.createForTest(t, p)
	name := p.Name
	eventually(t, func() error {
		ns := newNamespace(name)
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
			return err
		}
		if ns.Labels[v1alpha1.LabelProject] != name {
			return unexpectedState("the namespace has the project label", ns.Labels)
		}
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		// Pods cannot be created before the namespace has its default service account.
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied, metav1.ConditionTrue, "")
	})
}

// waitForBinding waits until the scheduler has bound the pod. A pod with GPUs must be on a
// node of the pool.
func (s *sluiceCluster) waitForBinding(t *testing.T, p *corev1.Pod, pool string, gpus bool) {
	t.Helper()
	var now *corev1.Pod
	eventually(t, func() (err error) {
		if now, err = s.clientset.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if now.Spec.NodeName == "" {
			return unexpectedState("the pod is bound", now.Status.Conditions)
		}
		return nil
	})
	if !gpus {
		return
	}
	node, err := s.clientset.CoreV1().Nodes().Get(t.Context(), now.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := node.Labels[v1alpha1.LabelNodePool]; got != pool {
		t.Errorf("bound to node %s of pool %q, want pool %q", node.Name, got, pool)
	}
}

// deletePodAndWait deletes the pod without a grace period and waits until its quota is free.
func (s *sluiceCluster) deletePodAndWait(t *testing.T, p *corev1.Pod) {
	t.Helper()
	ctx := context.Background() // the test context has ended
	pods := s.clientset.CoreV1().Pods(p.Namespace)
	if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete pod %s: %v", p.Name, err)
		return
	}
	eventually(t, func() error {
		if _, err := pods.Get(ctx, p.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return unexpectedState("pod "+p.Name+" is deleted", err)
		}
		return s.checkQuotaUsed(ctx, p.Namespace, 0)
	})
}

// checkQuotaUsed returns an error unless the fullest quota of the namespace counts so many
// thousandths of a GPU.
func (s *sluiceCluster) checkQuotaUsed(ctx context.Context, namespace string, want int64) error {
	quotas, err := s.clientset.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	most := int64(0)
	for i := range quotas.Items {
		for name, amount := range quotas.Items[i].Status.Used {
			if strings.HasPrefix(string(name), "requests."+string(v1alpha1.ResourceGPUMilli)) {
				most = max(most, amount.Value())
			}
		}
	}
	if len(quotas.Items) == 0 || most != want {
		return fmt.Errorf("%d quotas in %s count %d thousandths of GPUs, want %d", len(quotas.Items), namespace, most, want)
	}
	return nil
}

// eventuallyLong waits up to restartTimeout.
func eventuallyLong(t testing.TB, condition func() error) {
	t.Helper()
	clustertest.EventuallyWithin(t, restartTimeout, condition)
}
