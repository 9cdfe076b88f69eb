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
	"sluice.dev/test/cluster/clustertest"
)

// defaultUser is who makes the corpus's pods, unless a pod names somebody else.
const defaultUser = "anna@example.org"

// Every pod of the corpus comes out of the real API server as its header says
// and as its golden file shows, in a dry run and in earnest alike; and those
// that are let in are bound to a node of the right pool.
func TestPodAdmissionMatchesGoldenFiles(t *testing.T) {
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
	list := loadPodCases(t)
	users := []string{defaultUser}
	for _, s := range list {
		if s.user != "" {
			users = append(users, s.user)
		}
	}
	sharedCluster.grantPodAccess(t, "corpus", users...)
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			s.pod.Namespace = "corpus-" + s.project
			dry := s.createPod(t, metav1.DryRunAll)
			text, err := dry.text()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.checkHeader(dry, text); err != nil {
				t.Errorf("%v\n%s", err, text)
				if *update {
					return // what is wrong does not become the rule
				}
			}
			compareGolden(t, s.name, text)
			if s.dryRun != "" {
				return
			}
			made := s.createPod(t)
			if made.Pod != nil {
				t.Cleanup(func() { sharedCluster.deletePodAndWait(t, made.Pod) })
			}
			if again, err := made.text(); err != nil || again != text {
				t.Errorf("in a dry run\n%s\nand in earnest (%v)\n%s", text, err, again)
			}
			if made.Pod != nil {
				sharedCluster.waitForBinding(t, made.Pod, s.pool, s.milli != "0")
			}
		})
	}
}

// createPod makes the pod as the one who would make it.
func (s podCase) createPod(t *testing.T, dryRun ...string) admissionResult {
	t.Helper()
	heard := &warnings{}
	native := sharedCluster.impersonate(t, cmp.Or(s.user, defaultUser), heard)
	made, err := native.CoreV1().Pods(s.pod.Namespace).Create(t.Context(), s.pod.DeepCopy(), metav1.CreateOptions{DryRun: dryRun})
	o := admissionResult{Warnings: heard.sorted()}
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			t.Fatalf("the API server did not answer: %v", err)
		}
		o.Refused = err.Error()
		return o
	}
	o.Pod = made
	return o
}

// checkHeader holds an outcome against the pod's header.
func (s podCase) checkHeader(o admissionResult, text string) error {
	// A policy that fails refuses too, and for the wrong reason.
	for _, unwanted := range append(s.missing, "could not be evaluated") {
		if strings.Contains(text, unwanted) {
			return fmt.Errorf("it says %s", unwanted)
		}
	}
	if s.outcome == "refused" {
		if o.Pod != nil {
			return unexpectedState("it is refused", "admitted")
		}
		for _, want := range s.message {
			if !strings.Contains(o.Refused, want) {
				return fmt.Errorf("the refusal does not say %s", want)
			}
		}
		return nil
	}
	if o.Pod == nil {
		return unexpectedState("it is admitted", "refused")
	}
	p := o.Pod
	has := map[string][2]string{ // want, got
		"project":    {"corpus-" + s.project, p.Labels[v1alpha1.LabelProject]},
		"department": {"corpus", p.Labels[v1alpha1.LabelDepartment]},
		"created by": {cmp.Or(s.user, defaultUser), p.Annotations[v1alpha1.AnnotationCreatedBy]},
	}
	if s.workloadType != "" {
		has["type"] = [2]string{s.workloadType, p.Labels[v1alpha1.LabelWorkloadType]}
	}
	if s.milli != "" {
		has["charge"] = [2]string{s.milli, chargedGPUQuota(p)}
	}
	if s.timeLimit != "" {
		has["time limit"] = [2]string{s.timeLimit, p.Annotations[v1alpha1.AnnotationTimeLimit]}
	}
	if s.milli != "0" {
		has["pool"] = [2]string{s.pool, p.Labels[v1alpha1.LabelNodePool]}
		has["nodes"] = [2]string{"", nodeAffinityOutsidePool(p, s.pool)}
	}
	var errs []error
	for what, pair := range has {
		if pair[0] != pair[1] {
			errs = append(errs, fmt.Errorf("%s: %q, want %q", what, pair[1], pair[0]))
		}
	}
	return errors.Join(errs...)
}

// chargedGPUQuota is how much of the currency the pod is charged, over all its
// containers: it stands on one of them, as request and as limit.
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

// nodeAffinityOutsidePool are the ways in which a pod could come to a node outside of the
// pool: the terms of its node affinity are alternatives, so each must name it.
func nodeAffinityOutsidePool(p *corev1.Pod, pool string) string {
	if p.Spec.NodeSelector[v1alpha1.LabelNodePool] == pool {
		return ""
	}
	affinity := p.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return "any"
	}
	var stray []string
	for i, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == v1alpha1.LabelNodePool && r.Operator == corev1.NodeSelectorOpIn && slices.Equal(r.Values, []string{pool})
		}) {
			stray = append(stray, fmt.Sprintf("term %d", i))
		}
	}
	return strings.Join(stray, ", ")
}

// warnings are what the API server says beside its answer. It implements
// rest.WarningHandler.
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

// impersonate is a client in somebody else's name.
func (s *sluiceCluster) impersonate(t *testing.T, user string, heard rest.WarningHandler) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	config.WarningHandler = heard
	native, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return native
}

// grantPodAccess gives the users what a member of a project and an operator have.
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

// newPoolQuota is a pool with what is guaranteed and what is the limit.
func newPoolQuota(pool, guaranteed, limit string) v1alpha1.PoolQuota {
	return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
}

// createForTest makes the object, and takes it away after the test where the cluster goes
// on to be used by others.
func (s *sluiceCluster) createForTest(t testing.TB, object client.Object) {
	t.Helper()
	if s == sharedCluster {
		create(t, object)
		return
	}
	if err := s.adminClient.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// createDepartment makes one in which work ends after two days.
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

// allowPrivilegedPods leaves what the pods of a department may be to Sluice's own policies, as
// clusters do whose programs need IPC_LOCK.
func (s *sluiceCluster) allowPrivilegedPods(t testing.TB, name string) {
	t.Helper()
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podSecurity":"privileged"}}`))
	if err := s.adminClient.Patch(t.Context(), department, change); err != nil {
		t.Fatal(err)
	}
}

// createGovernedProject makes a project and waits until its namespace is governed and its
// quotas are counted.
func (s *sluiceCluster) createGovernedProject(t testing.TB, department, name string, quotas ...v1alpha1.PoolQuota) {
	t.Helper()
	p := newProject(name, func(p *v1alpha1.Project) { p.Spec.Department, p.Spec.NodePools = department, quotas })
	s.createForTest(t, p)
	eventually(t, func() error {
		ns := newNamespace(name)
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
			return err
		}
		if ns.Labels[v1alpha1.LabelProject] != name {
			return unexpectedState("the namespace is governed", ns.Labels)
		}
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		// Nobody's pods are made before their namespace has this.
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied, metav1.ConditionTrue, "")
	})
}

// waitForBinding waits until the scheduler has bound the pod, and if it has GPUs, to
// a node of the pool.
func (s *sluiceCluster) waitForBinding(t *testing.T, p *corev1.Pod, pool string, gpus bool) {
	t.Helper()
	var now *corev1.Pod
	eventually(t, func() (err error) {
		if now, err = s.clientset.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if now.Spec.NodeName == "" {
			return unexpectedState("it is bound", now.Status.Conditions)
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

// deletePodAndWait deletes a pod at once and waits until its share is free again.
func (s *sluiceCluster) deletePodAndWait(t *testing.T, p *corev1.Pod) {
	t.Helper()
	ctx := context.Background() // a clean-up's test context has ended
	pods := s.clientset.CoreV1().Pods(p.Namespace)
	if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete pod %s: %v", p.Name, err)
		return
	}
	eventually(t, func() error {
		if _, err := pods.Get(ctx, p.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return unexpectedState("pod "+p.Name+" is gone", err)
		}
		return s.checkQuotaUsed(ctx, p.Namespace, 0)
	})
}

// checkQuotaUsed tells whether the fullest of the namespace's quotas counts so many
// thousandths of GPUs.
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

// eventuallyLong waits longer than eventually does.
func eventuallyLong(t testing.TB, condition func() error) {
	t.Helper()
	clustertest.EventuallyWithin(t, restartTimeout, condition)
}
