// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// replicasTest is a cluster with two replicas of the webhook and one project.
type replicasTest struct {
	*sluiceCluster
	t        testing.TB
	replicas *loadBalancer
	ns       string
	pods     int
}

func newReplicasTest(t testing.TB, s *sluiceCluster) *replicasTest {
	t.Helper()
	r := &replicasTest{sluiceCluster: s, t: t, replicas: s.startWebhookReplicas(t, 2), ns: "replicas"}
	s.createDepartment(t, "replicas", newPoolQuota("dgx", "0", "1"))
	s.createGovernedProject(t, "replicas", r.ns, newPoolQuota("dgx", "0", "1"))
	return r
}

func (r *replicasTest) createPolicy(name string, enforcement v1alpha1.Enforcement, rego string) {
	r.t.Helper()
	r.createForTest(r.t, &v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PolicySpec{Enforcement: enforcement, Match: v1alpha1.PolicyMatch{Projects: []string{r.ns}}, Rego: "package " + name + "\n" + rego},
	})
	r.waitForCondition(name, v1alpha1.ConditionEnforced, "generation 1 is in force")
}

// waitForCondition waits until a condition of a policy is true with a message, or until there is none if the message is empty.
func (r *replicasTest) waitForCondition(name, condition, message string) {
	r.t.Helper()
	eventuallyLong(r.t, func() error {
		policy := r.policy(name)
		got := meta.FindStatusCondition(policy.Status.Conditions, condition)
		if message == "" && got == nil || got != nil && message != "" && got.Status == metav1.ConditionTrue && strings.Contains(got.Message, message) {
			return nil
		}
		return unexpectedState(condition+" "+message, policy.Status)
	})
}

func (r *replicasTest) policy(name string) *v1alpha1.Policy {
	r.t.Helper()
	policy := &v1alpha1.Policy{}
	if err := r.adminClient.Get(r.t.Context(), client.ObjectKey{Name: name}, policy); err != nil {
		r.t.Fatal(err)
	}
	return policy
}

// tryPod creates a pod with a label, without effect if dryRun.
func (r *replicasTest) tryPod(label string, dryRun bool) error {
	r.pods++
	pod := newPod(r.ns, fmt.Sprintf("pod-%d", r.pods), func(p *corev1.Pod) { p.Labels = map[string]string{"kind": label} })
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := r.clientset.CoreV1().Pods(r.ns).Create(r.t.Context(), pod, options)
	return err
}

// restart kills both replicas of the webhook, and lifecycle, and waits until they answer again.
func (r *replicasTest) restart() {
	r.t.Helper()
	former := map[string]int{}
	for _, name := range []string{"webhook", "lifecycle"} {
		former[name] = r.componentPID(r.t, name)
		killProcess(r.t, former[name])
	}
	r.replicas.killOne()
	for name, pid := range former {
		eventuallyLong(r.t, func() error { return r.restarted(r.t.Context(), name, pid) })
	}
}

// twiceRego is a policy as people write it, whose time grows with the square of the variables.
const twiceRego = `
deny contains {"msg": sprintf("container %s: variable %s occurs twice", [c.name, a.name]), "fix": "remove one"} if {
	some c in input.object.spec.containers
	some i, a in c.env
	some j, b in c.env
	i < j
	a.name == b.name
}`

// Pods for which a policy takes too long are refused as too large, with a condition and an event of the Policy, and all other pods
// are admitted. Guards invariants 1, 10 and 11 of the design.
func TestTimeOutsAreReported(t *testing.T) {
	r := newReplicasTest(t, newDedicatedCluster(t))
	r.createPolicy("twice", v1alpha1.EnforcementDeny, twiceRego)
	large := newPod(r.ns, "large", func(p *corev1.Pod) {
		for len(p.Spec.Containers) < 20 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", len(p.Spec.Containers)), Image: "a:1"})
		}
		for c := range p.Spec.Containers {
			for i := range 250 {
				p.Spec.Containers[c].Env = append(p.Spec.Containers[c].Env, corev1.EnvVar{Name: fmt.Sprintf("V_%d_%d", c, i)})
			}
		}
	})
	for range 4 { // two for each replica, which take turns
		eventuallyLong(t, func() error {
			_, err := r.clientset.CoreV1().Pods(r.ns).Create(t.Context(), large, metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), "too large: the policy twice takes longer for it than a policy may") {
				return unexpectedState("a large pod is refused", err)
			}
			if err := r.tryPod("small", true); err != nil {
				t.Errorf("a pod after a large one: %v", err)
			}
			return nil
		})
	}
	r.waitForCondition("twice", v1alpha1.ConditionTimedOut, "evaluations of the last hour took longer than a policy may; these objects were refused. By project: "+r.ns)
	eventually(t, func() error {
		var list eventsv1.EventList
		if err := r.adminClient.List(t.Context(), &list); err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "PolicyTimedOut" && e.Regarding.Name == "twice" && e.Type == corev1.EventTypeWarning {
				return nil
			}
		}
		return unexpectedState("an event PolicyTimedOut", len(list.Items))
	})
	t.Logf("kubectl describe:\n%s", r.mustKubectl(t, "describe", "slpol", "twice"))
}

// The status of a policy counts what it refused, and in DryRun what it would have refused and changed, across restarts of the
// webhook and of lifecycle. Guards invariant 11 of the design.
func TestViolationsAreCounted(t *testing.T) {
	r := newReplicasTest(t, newDedicatedCluster(t))
	r.createPolicy("tried", v1alpha1.EnforcementDryRun, `deny contains {"msg": "no name of a team", "field": "metadata.labels"} if not input.object.metadata.labels.team
overrides := {"metadata": {"labels": {"team": "unknown"}}}`)
	r.createPolicy("counted", v1alpha1.EnforcementDeny, `deny contains "no such pods" if input.object.metadata.labels.kind == "bad"`)
	eventually(t, func() error {
		for range 4 { // two for each replica, which take turns; it has both policies then
			if err := r.tryPod("bad", true); err == nil || !strings.Contains(err.Error(), "no such pods") {
				return unexpectedState("a bad pod is refused", err)
			}
		}
		return nil
	})
	wait := func(name string, want int64) {
		t.Helper()
		eventuallyLong(t, func() error {
			status := r.policy(name).Status
			if status.Violations == want && len(status.ViolationsByProject) == 1 && status.ViolationsByProject[0].Project == r.ns &&
				status.ViolationsByProject[0].Violations == want && len(status.Examples) > 0 {
				return nil
			}
			return unexpectedState(fmt.Sprintf("%s has %d violations", name, want), status)
		})
	}
	create := func(bad, good int) {
		t.Helper()
		for range bad {
			if err := r.tryPod("bad", false); err == nil || !strings.Contains(err.Error(), "no such pods") {
				t.Fatalf("a bad pod: %v", err)
			}
		}
		for range good {
			if err := r.tryPod("good", false); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = r.tryPod("bad", true), r.tryPod("good", true)
	}
	create(5, 2)
	wait("counted", 5)
	wait("tried", 7)
	t.Logf("kubectl get:\n%s", r.mustKubectl(t, "get", "slpol", "counted", "tried"))
	t.Logf("kubectl describe:\n%s", r.mustKubectl(t, "describe", "slpol", "tried"))
	example := r.policy("tried").Status.Examples[0]
	if example.Message != "metadata.labels: no name of a team" || len(example.Changes) != 1 || example.Changes[0] != "metadata.labels[team]" {
		t.Errorf("example %+v", example)
	}

	r.restart()
	eventuallyLong(t, func() error { return r.tryPod("good", true) })
	wait("counted", 5)
	create(2, 1)
	wait("counted", 7)
	wait("tried", 10)
	policy := r.policy("counted")
	before := policy.DeepCopy()
	policy.Spec.Rego += "\n# changed\n"
	if err := r.adminClient.Patch(t.Context(), policy, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventuallyLong(t, func() error {
		if status := r.policy("counted").Status; status.Violations != 0 || status.EnforcedGeneration != 2 || len(status.Examples) > 0 {
			return unexpectedState("a new generation has no violations", status)
		}
		return nil
	})
}
