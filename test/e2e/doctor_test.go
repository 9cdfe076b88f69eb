// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// doctorReport is the output of `sluice doctor -o json`.
type doctorReport struct {
	Installed bool
	Checks    []struct {
		Name, Result, Message string
		Findings              []struct{ Result, Object, Message, Do string }
	}
}

// problems returns the results of the checks that found something, by name.
func (r *doctorReport) problems() map[string]string {
	found := map[string]string{}
	for _, c := range r.Checks {
		if c.Result == "Error" || c.Result == "Warning" {
			found[c.Name] = c.Result
		}
	}
	return found
}

// doctor runs `sluice doctor` and returns its report and exit status.
func (s *sluiceCluster) doctor(ctx context.Context, arguments ...string) (doctorReport, int, error) {
	var report doctorReport
	if len(arguments) == 0 {
		arguments = []string{"--dir", s.dir}
	}
	out, err := exec.CommandContext(ctx, s.binary, append([]string{"doctor", "-o", "json"}, arguments...)...).Output()
	status, exit := 0, (*exec.ExitError)(nil)
	if errors.As(err, &exit) {
		status, err = exit.ExitCode(), nil
	}
	if err == nil && status < 2 {
		err = json.Unmarshal(out, &report)
	}
	return report, status, err
}

// signalComponent sends a signal to a component's process.
func (s *sluiceCluster) signalComponent(t *testing.T, name string, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.componentPID(t, name), signal); err != nil {
		t.Fatal(err)
	}
}

// breakage is one way to break an installation.
type breakage struct {
	name string
	// broken is called before each run of the doctor, since Sluice repairs some damage by itself.
	broken func(t *testing.T) error
	repair func(t *testing.T)
	// want are the checks that must find it, may those that also can.
	want map[string]string
	may  []string
	// message is part of a finding.
	message string
}

// A healthy installation passes, and each damage is found by exactly the checks that are about it.
func TestDoctorFindsDamage(t *testing.T) {
	s := newDedicatedCluster(t)
	ns := newNamespace("stray")
	if err := s.adminClient.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	s.waitForHealth(t)
	t.Run("least rights", s.testDoctorRights)
	for _, b := range s.breakages() {
		t.Run(b.name, func(t *testing.T) {
			eventually(t, func() error {
				if err := b.broken(t); err != nil {
					return err
				}
				report, status, err := s.doctor(t.Context())
				if err != nil {
					return err
				}
				return b.check(&report, status)
			})
			b.repair(t)
			s.waitForHealth(t)
		})
	}
}

// check compares the report with what the damage must yield.
func (b *breakage) check(report *doctorReport, status int) error {
	found, wantStatus := report.problems(), 0
	for name, result := range b.want {
		if found[name] != result {
			return fmt.Errorf("%s is %q, want %s; found %v", name, found[name], result, found)
		}
		if result == "Error" {
			wantStatus = 1
		}
	}
	for name := range found {
		if _, wanted := b.want[name]; !wanted && !strings.Contains(strings.Join(b.may, " "), name) {
			return fmt.Errorf("%s has a finding that is not about the damage: %v", name, found)
		}
	}
	if status != wantStatus {
		return fmt.Errorf("exit status %d, want %d", status, wantStatus)
	}
	for _, c := range report.Checks {
		for _, finding := range c.Findings {
			if finding.Do == "" {
				return fmt.Errorf("%s does not say what to do: %+v", c.Name, finding)
			}
			if _, wanted := b.want[c.Name]; wanted && strings.Contains(finding.Object+": "+finding.Message, b.message) {
				return nil
			}
		}
	}
	return fmt.Errorf("no finding has %q: %+v", b.message, report.Checks)
}

// waitForHealth waits until the doctor finds nothing.
func (s *sluiceCluster) waitForHealth(t *testing.T) {
	t.Helper()
	eventuallyLong(t, func() error {
		report, status, err := s.doctor(t.Context())
		if err != nil {
			return err
		}
		if found := report.problems(); len(found) > 0 || status != 0 || !report.Installed {
			return fmt.Errorf("exit status %d, problems %v", status, found)
		}
		return nil
	})
}

func (s *sluiceCluster) breakages() []breakage {
	notices := client.ObjectKey{Name: "sluice"}
	once := func(change func(t *testing.T) error) func(t *testing.T) error {
		done := false
		return func(t *testing.T) error {
			if done {
				return nil
			}
			err := change(t)
			done = err == nil
			return err
		}
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}, Spec: v1alpha1.NodePoolSpec{
		NodeSelector: map[string]string{"none": "has-it"}, Scheduler: v1alpha1.SchedulerKube,
	}}
	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: v1alpha1.PolicySpec{Rego: "package broken\n\ndeny := \n"}}
	stray := newPod("stray", "stray", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	})
	const crd, field = "usagerecords.sluice.dev", "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/usedGPUMilliHours"
	removed := "" // the field's schema
	return []breakage{
		{
			name:   "the webhook is stopped",
			broken: once(func(t *testing.T) error { s.stopWebhook(t); return nil }),
			repair: func(t *testing.T) { s.signalComponent(t, "webhook", syscall.SIGCONT) },
			want:   map[string]string{"webhook-reachable": "Error"}, may: []string{"webhook-replicas"},
			message: `failed calling webhook "projects.sluice.dev"`,
		},
		{
			name: "the caBundle is replaced",
			broken: once(func(t *testing.T) error {
				return s.replaceCABundle(t.Context(), newAuthority(t), notices)
			}),
			// For an hour after a renewal, a run keeps the foreign authority beside Sluice's own.
			repair:  func(t *testing.T) { s.renewCertificates(t) },
			want:    map[string]string{"webhook-reachable": "Error", "certificates": "Error"},
			message: "issued the certificate that the webhook serves",
		},
		{
			name: "a field of a CRD is removed",
			broken: once(func(t *testing.T) error {
				removed = s.mustKubectl(t, "get", "crd", crd, "-o", "jsonpath={"+strings.ReplaceAll(strings.ReplaceAll(field, "/0/", "[0]/"), "/", ".")+"}")
				_, err := s.kubectl(t.Context(), "patch", "crd", crd, "--type=json", "-p", `[{"op":"remove","path":"`+field+`"}]`)
				return err
			}),
			repair: func(t *testing.T) {
				s.mustKubectl(t, "patch", "crd", crd, "--type=json", "-p", `[{"op":"add","path":"`+field+`","value":`+removed+`}]`)
			},
			want:    map[string]string{"custom-resource-definitions": "Error"},
			message: "CustomResourceDefinition " + crd + ": fields of this version are missing: status.usedGPUMilliHours",
		},
		{
			name: "an agent is stopped",
			broken: once(func(t *testing.T) error {
				s.signalComponent(t, "gpuagent-dgx-1", syscall.SIGSTOP)
				return client.IgnoreNotFound(s.adminClient.Delete(t.Context(), &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}))
			}),
			repair:  func(t *testing.T) { s.signalComponent(t, "gpuagent-dgx-1", syscall.SIGCONT) },
			want:    map[string]string{"agents": "Warning"},
			message: "Node dgx-1: it has GPUs and no agent reports it",
		},
		{
			name: "a policy does not compile",
			broken: once(func(t *testing.T) error {
				s.stopWebhook(t) // it would refuse the policy
				defer s.signalComponent(t, "webhook", syscall.SIGCONT)
				return s.adminClient.Create(t.Context(), policy.DeepCopy())
			}),
			repair: func(t *testing.T) {
				if err := s.adminClient.Delete(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
			},
			want:    map[string]string{"policies": "Error"},
			message: "Policy broken: it does not compile (line ",
		},
		{
			name:   "a pool has no nodes",
			broken: once(func(t *testing.T) error { return s.adminClient.Create(t.Context(), pool.DeepCopy()) }),
			repair: func(t *testing.T) {
				if err := s.adminClient.Delete(t.Context(), pool); err != nil {
					t.Fatal(err)
				}
			},
			want:    map[string]string{"node-pools": "Error"},
			message: "NodePool nowhere: Ready (NoNodes)",
		},
		{
			name: "a GPU pod runs outside of projects",
			broken: once(func(t *testing.T) error {
				if err := client.IgnoreAlreadyExists(s.adminClient.Create(t.Context(), stray.DeepCopy())); err != nil {
					return err
				}
				// Users cannot create such a pod here, but one could exist before Sluice was installed.
				return s.adminClient.Patch(t.Context(), stray.DeepCopy(),
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"gpu-fraction":"0.5"}}}`)))
			}),
			repair: func(t *testing.T) {
				if err := s.adminClient.Delete(t.Context(), stray.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			},
			want:    map[string]string{"gpu-pods-outside": "Warning"},
			message: "Namespace stray: GPU pods outside of a project: 1 (stray)",
		},
	}
}

// newAuthority returns the certificate of an authority that issued nothing.
func newAuthority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * 365 * time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// replaceCABundle replaces the caBundle of all validating webhooks.
func (s *sluiceCluster) replaceCABundle(ctx context.Context, authority []byte, key client.ObjectKey) error {
	configurations := s.clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	live, err := configurations.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var patch []string
	for i := range live.Webhooks {
		patch = append(patch, fmt.Sprintf(`{"op":"replace","path":"/webhooks/%d/clientConfig/caBundle","value":%q}`,
			i, base64.StdEncoding.EncodeToString(authority)))
	}
	_, err = configurations.Patch(ctx, key.Name, types.JSONPatchType, []byte("["+strings.Join(patch, ",")+"]"), metav1.PatchOptions{})
	return err
}

// A ServiceAccount with the ClusterRole sluice:doctor can make all checks but one, and one without rights learns which
// rights it lacks.
func (s *sluiceCluster) testDoctorRights(t *testing.T) {
	for _, name := range []string{"doctor", "nobody"} {
		if err := s.adminClient.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "stray", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.adminClient.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "doctor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:doctor"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "stray", Name: "doctor"}},
	}); err != nil {
		t.Fatal(err)
	}
	skipped := func(name string) (map[string]string, error) {
		report, status, err := s.doctor(t.Context(), "--kubeconfig", s.accountKubeconfig(t, "stray", name), "--dir", s.dir)
		if err != nil {
			return nil, err
		}
		if found := report.problems(); len(found) > 0 || status != 0 {
			return nil, fmt.Errorf("%s: exit status %d, problems %v", name, status, found)
		}
		all := map[string]string{}
		for _, c := range report.Checks {
			if c.Result == "Skipped" && strings.Contains(c.Message, "no right to ") {
				all[c.Name] = c.Message
			}
		}
		return all, nil
	}
	eventually(t, func() error { // the API server has yet to aggregate and observe the role
		lacks, err := skipped("doctor")
		// No role of Sluice reads Secrets, or creates pods in the namespace default.
		if err == nil && (len(lacks) != 2 || lacks["admission-policies-enforced"] == "" || lacks["certificates"] == "") {
			err = fmt.Errorf("the role lacks rights for %v", lacks)
		}
		return err
	})
	lacks, err := skipped("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if len(lacks) < 15 || !strings.Contains(lacks["node-pools"], "kubectl auth can-i list nodepools.sluice.dev") {
		t.Errorf("without rights, %d checks are skipped: %v", len(lacks), lacks)
	}
}

// accountKubeconfig writes a kubeconfig with the token of a ServiceAccount.
func (s *sluiceCluster) accountKubeconfig(t *testing.T, namespace, name string) string {
	t.Helper()
	token, err := s.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A cluster that does not answer is no cluster with errors.
func TestDoctorWithoutCluster(t *testing.T) {
	t.Parallel()
	config := clientcmdapi.NewConfig()
	config.Clusters["gone"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["gone"] = &clientcmdapi.Context{Cluster: "gone"}
	config.CurrentContext = "gone"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string][]string{
		"no answer": {"--kubeconfig", path}, "a wrong flag": {"--fail-on", "sometimes"}, "an argument": {"everything"},
	} {
		if _, status, err := sharedCluster.doctor(t.Context(), arguments...); err != nil || status != 2 {
			t.Errorf("%s: exit status %d, error %v; want 2", name, status, err)
		}
	}
}
