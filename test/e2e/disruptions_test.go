// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// disruptionTime is how long the tests of disruptions disrupt at least.
var disruptionTime = flag.Duration("disruption-time", 0,
	"how long TestDisruptions and TestLeaderKilled disrupt a cluster at least; 0 is once, and a minute")

const (
	// undisturbedPeriod is the time in which the rate without disruption is measured.
	undisturbedPeriod = 10 * time.Second
	// etcdPause is how long etcd does not answer.
	etcdPause = 20 * time.Second
	// recoveryTime limits the time from the end of a disruption until pods are admitted. An API server that restarted refuses
	// for up to 30 seconds, and longer on a busy machine: it finds kinds of CustomResourceDefinitions, such as
	// AdmissionParameters, that late.
	recoveryTime = restartTimeout
)

// disruptionTest is a cluster with two replicas of the webhook, and clients that create pods in a project.
type disruptionTest struct {
	*sluiceCluster
	ns string
	// bin has the programs of the cluster.
	bin  string
	load *admissionLoad
}

// Pods are created at the highest rate that the cluster sustains, while each part that admits them is disrupted. No pod is admitted
// without Sluice's policies, and none is refused, except for requests that no server could answer, which are counted. Guards
// invariants 2 and 8 of the design.
func TestDisruptions(t *testing.T) {
	d := newDisruptionTest(t)
	later := buildLaterWebhook(t)
	d.load = startAdmissionLoad(t, d.config, d.ns)
	d.disrupt(t, "undisturbed", func(t *testing.T) { pause(t.Context(), undisturbedPeriod) })
	for begun, round := time.Now(), 1; round == 1 || time.Since(begun) < *disruptionTime; round++ {
		d.disrupt(t, "each replica restarted in turn", d.restartReplicas)
		d.disrupt(t, "certificates rotated", d.rotateCertificates)
		d.disrupt(t, "a policy broken and mended", d.breakPolicy)
		d.disrupt(t, "an upgrade", func(t *testing.T) { d.replaceWebhook(t, later, "restart") })
		d.disrupt(t, "a rollback", func(t *testing.T) {
			d.replaceWebhook(t, filepath.Join(filepath.Dir(sharedCluster.binary), "webhook"), "undo")
		})
		d.disrupt(t, "etcd paused", d.pauseEtcd, noServer)
		d.disrupt(t, "the API server killed", d.restartAPIServer, noServer, noParameters)
	}
	d.load.end()
}

// newDisruptionTest starts a cluster with programs of its own, since the test replaces one.
func newDisruptionTest(t *testing.T) *disruptionTest {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sluice-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &disruptionTest{ns: "disrupted", bin: filepath.Join(dir, "bin")}
	if err := os.Mkdir(d.bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"sluice", "webhook", "lifecycle", "sluice-lab", "sluice-lab-gpuagent"} {
		installProgram(t, d.bin, filepath.Join(filepath.Dir(sharedCluster.binary), program))
	}
	if d.sluiceCluster, err = startSluice(t.Context(), d.bin, filepath.Join(dir, "own"), "--nodes", "2"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.teardown(t) })
	d.createDepartment(t, d.ns, newPoolQuota("dgx", "0", "1"))
	d.createGovernedProject(t, d.ns, d.ns, newPoolQuota("dgx", "0", "1"))
	// As shipped: the endpoints of the Service follow a replica that ends by a moment, for which it drains. Of the connections that the
	// API server keeps to it, each serves one more request meanwhile. The fewer remain unused until the server ends, the less likely
	// is a request on one of them at that moment, which is lost: a connection has no way to refuse it.
	d.editConfiguration(t, "webhook", "drainPeriod: 0s", "drainPeriod: 10s")
	d.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "scale", "deployment", "webhook", "--replicas", "2")
	d.rollOut(t, "webhook", "restart")
	return d
}

// editConfiguration replaces a text in the configuration of a component, whose pods read it when they start.
func (s *sluiceCluster) editConfiguration(t testing.TB, component, before, after string) {
	t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: component}}
	if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(configMap), configMap); err != nil {
		t.Fatal(err)
	}
	key := component + ".yaml"
	if strings.Count(configMap.Data[key], before) != 1 {
		t.Fatalf("the configuration of %s has not %q once:\n%s", component, before, configMap.Data[key])
	}
	configMap.Data[key] = strings.Replace(configMap.Data[key], before, after, 1)
	if err := s.adminClient.Update(t.Context(), configMap); err != nil {
		t.Fatal(err)
	}
}

// rollOut restarts the pods of a Deployment one after the other, or undoes the last rollout.
func (s *sluiceCluster) rollOut(t testing.TB, deployment, verb string) {
	t.Helper()
	namespace := "--namespace=" + v1alpha1.SystemNamespace
	s.mustKubectl(t, "rollout", verb, "deployment/"+deployment, namespace)
	s.mustKubectl(t, "rollout", "status", "deployment/"+deployment, namespace, "--timeout="+restartTimeout.String())
	// The rollout is complete before the replaced pods have ended.
	clustertest.EventuallyWithin(t, restartTimeout, func() error {
		pods, err := s.componentPods(t, deployment)
		if err == nil && slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }) {
			err = fmt.Errorf("a pod of %s ends", deployment)
		}
		return err
	})
}

// componentPods returns the pods of a Deployment of Sluice.
func (s *sluiceCluster) componentPods(t testing.TB, deployment string) ([]corev1.Pod, error) {
	list, err := s.clientset.CoreV1().Pods(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=sluice-" + deployment,
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// installProgram replaces a program in the folder of a cluster by the one at path. A pod that starts later runs it.
func installProgram(t *testing.T, folder, path string) {
	t.Helper()
	place := filepath.Join(folder, filepath.Base(path))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A program that runs cannot be written.
	if err := os.WriteFile(place+".new", raw, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(place+".new", place); err != nil {
		t.Fatal(err)
	}
}

// disrupt runs a disruption as a subtest. Pods must be admitted after it. Only the expected outcomes may occur.
func (d *disruptionTest) disrupt(t *testing.T, name string, run func(t *testing.T), expected ...outcome) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		before := d.load.counts()
		run(t)
		d.load.waitForAdmissions(t, recoveryTime)
		d.load.counts().since(before).check(t, expected...)
	})
}

func (d *disruptionTest) restartReplicas(t *testing.T) {
	pods, err := d.componentPods(t, "webhook")
	if err != nil || len(pods) != 2 {
		t.Fatalf("%d replicas: %v", len(pods), err)
	}
	for i := range pods {
		d.mustKubectl(t, "delete", "pod", pods[i].Name, "--namespace="+v1alpha1.SystemNamespace, "--timeout="+restartTimeout.String())
		d.eventuallyWebhooks(t, 2)
	}
}

// rotateCertificates empties the Secret and renews the certificate, and waits until both replicas serve a new one.
func (d *disruptionTest) rotateCertificates(t *testing.T) {
	former, err := d.servedCertificates(t)
	if err != nil {
		t.Fatal(err)
	}
	d.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "patch", "secret", "webhook-certificates", "--type=merge", "-p", `{"data":null}`)
	d.renewCertificates(t)
	eventuallyLong(t, func() error {
		served, err := d.servedCertificates(t)
		if err == nil && (served[0] == former[0] || served[0] != served[1]) {
			err = errors.New("the replicas do not serve a new certificate yet")
		}
		return err
	})
}

// servedCertificates returns the certificate of each replica of the webhook.
func (d *disruptionTest) servedCertificates(t *testing.T) (served []string, err error) {
	replicas, err := filepath.Glob(d.podDir("webhook*"))
	if err != nil || len(replicas) != 2 {
		return nil, fmt.Errorf("%d replicas, want 2: %w", len(replicas), err)
	}
	for _, replica := range replicas {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		connection, err := dialer.DialContext(t.Context(), "tcp", d.componentAddress(t, filepath.Base(replica), "listen"))
		if err != nil {
			return nil, err
		}
		connection.Close()
		served = append(served, string(connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw))
	}
	return served, nil
}

// breakPolicy breaks a policy of the project, which the webhook would refuse, and mends it.
func (d *disruptionTest) breakPolicy(t *testing.T) {
	const rego = "package disrupted\n\ndeny contains \"bad\" if input.object.metadata.labels.kind == \"bad\"\n"
	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: d.ns}}
	policy.Spec.Rego, policy.Spec.Match.Projects, policy.Spec.Enforcement = rego, []string{d.ns}, v1alpha1.EnforcementDeny
	if err := d.adminClient.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	waitForGeneration := func(enforced int64) {
		t.Helper()
		eventuallyLong(t, func() error {
			if err := d.adminClient.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
				return err
			}
			if s := policy.Status; s.ObservedGeneration != policy.Generation || s.EnforcedGeneration != enforced {
				return unexpectedState(fmt.Sprintf("generation %d is in force", enforced), s)
			}
			return nil
		})
	}
	setRego := func(rego string) {
		t.Helper()
		change := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"rego":%q}}`, rego))
		eventuallyLong(t, func() error { return d.adminClient.Patch(t.Context(), policy, change) })
	}
	waitForGeneration(1)
	d.checkPolicies(t, false)
	setRego("package disrupted\n\ndeny contains \"broken\" if input.objekt\n")
	d.checkPolicies(t, true)
	waitForGeneration(1)
	setRego(rego + "# mended\n")
	waitForGeneration(3)
	if err := d.adminClient.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
}

// checkPolicies sets whether the webhook checks policies.
func (d *disruptionTest) checkPolicies(t *testing.T, enabled bool) {
	t.Helper()
	eventually(t, func() error {
		var registration admissionv1.ValidatingWebhookConfiguration
		if err := d.adminClient.Get(t.Context(), client.ObjectKey{Name: "sluice"}, &registration); err != nil {
			return err
		}
		for i := range registration.Webhooks {
			if w := &registration.Webhooks[i]; w.Name == "policies.sluice.dev" {
				w.ObjectSelector = &metav1.LabelSelector{}
				if !enabled {
					w.ObjectSelector.MatchLabels = map[string]string{"matches": "nothing"}
				}
			}
		}
		return d.adminClient.Update(t.Context(), &registration)
	})
}

// replaceWebhook makes the replicas run another program of the webhook.
func (d *disruptionTest) replaceWebhook(t *testing.T, program, verb string) {
	installProgram(t, d.bin, program)
	d.rollOut(t, "webhook", verb)
	d.eventuallyWebhooks(t, 2)
}

func (d *disruptionTest) pauseEtcd(t *testing.T) {
	pid := d.componentPID(t, "etcd")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	pause(t.Context(), etcdPause)
}

func (d *disruptionTest) restartAPIServer(t *testing.T) {
	pid := d.componentPID(t, "kube-apiserver")
	// After SIGTERM it would refuse connections for a minute, until it ends the watches of its clients.
	killProcess(t, pid)
	eventuallyLong(t, func() error { return d.restarted(t.Context(), "kube-apiserver", pid) })
}
