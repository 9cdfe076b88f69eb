// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// No password, private key or token appears in the log of a component, in an event or in an object of Sluice, at level debug: while
// mail is signed and sent and is refused, certificates are rotated and invalid, and metrics are read. Nor does one appear in the
// records of decisions, with whole objects, of workloads that have secrets in variables, arguments and annotations.
func TestSecretsAreNeverLogged(t *testing.T) {
	const ns, owner = "secretive", "owner@example.org"
	c := newPolicyTimeCluster(t)
	secrets := c.clientset.CoreV1().Secrets(v1alpha1.SystemNamespace)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.createForTest(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "sluice-mail-dkim"},
		Data:       map[string][]byte{"tls.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})},
	})
	c.reconfigure(t, func(component string, config map[string]any) {
		config["logging"] = map[string]any{"level": "debug"}
		if component == "webhook" {
			config["decisions"] = map[string]any{"objects": true, "file": map[string]any{"path": filepath.Join(c.dir, "logs", "decisions.jsonl")}}
		}
		if component == "lifecycle" {
			config["mail"].(map[string]any)["dkim"] = map[string]any{
				"domain": "example.org", "selector": "gpu", "keySecret": map[string]any{"name": "sluice-mail-dkim"},
			}
		}
	})
	found := secretTexts{}
	rememberSecrets := func() {
		t.Helper()
		list, err := secrets.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range list.Items {
			for key, value := range secret.Data {
				if !strings.HasSuffix(key, ".crt") && key != corev1.BasicAuthUsernameKey && key != "served-since" {
					found.add(secret.Name+" "+key, value)
				}
			}
		}
	}
	rememberSecrets()

	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	job := newJobWorkload(ns, "training", migDevice, func(p *corev1.Pod) {
		main := &p.Spec.Containers[0]
		p.Annotations = map[string]string{"example.org/token": "secret of an annotation"}
		main.Env = append(main.Env, corev1.EnvVar{Name: "TOKEN", Value: "secret of a variable"})
		main.Args = []string{"--password=secret of an argument"}
		for _, secret := range []string{p.Annotations["example.org/token"], "secret of a variable", "secret of an argument"} {
			found.add(secret, []byte(secret))
		}
	})
	c.startWorkloads(t, job)
	first := c.deadline(t, job)
	c.advanceTimeTo(t, first.Add(-24*time.Hour))
	c.waitForMails(t, owner, 1)

	// A wrong password, and a certificate with a key that is none.
	garbage := []byte("-----BEGIN RSA PRIVATE KEY-----\nQWxsIHlvdXIga2V5cyBhcmUgYmVsb25nIHRvIHVzIQ==\n-----END RSA PRIVATE KEY-----\n")
	for _, change := range []struct {
		secret, key string
		value       []byte
	}{
		{"sluice-mail", corev1.BasicAuthPasswordKey, []byte("a wrong password of the mail server")},
		{"webhook-certificates", "tls.key", garbage},
	} {
		patch := fmt.Sprintf(`{"data":{%q:%q}}`, change.key, base64.StdEncoding.EncodeToString(change.value))
		c.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "patch", "secret", change.secret, "-p", patch)
		found.add(change.secret, change.value)
	}
	c.advanceTimeTo(t, first.Add(-4*time.Hour))
	c.renewCertificates(t)
	if secret, err := secrets.Get(t.Context(), "webhook-certificates", metav1.GetOptions{}); err != nil || bytes.Equal(secret.Data["tls.key"], garbage) {
		t.Errorf("the certificate is not issued again: %v", err)
	}
	c.eventuallyAfterStep(t, func() error {
		for _, notice := range c.listNotices(t, ns) {
			if notice.Status.LastError != "" {
				return nil
			}
		}
		return errors.New("no mail was refused")
	})
	rememberSecrets()
	token, err := c.newMetricsToken(t, metricsReader, "sluice-metrics-reader")
	if err != nil {
		t.Fatal(err)
	}
	found.add("token of the metrics reader", []byte(token))
	for _, component := range []string{"webhook", "lifecycle"} {
		if _, _, err := getWithToken(t.Context(), "https://"+c.componentAddress(t, component, "metrics")+"/metrics", token); err != nil {
			t.Error(err)
		}
	}
	found.addTokenFiles(t, c.dir)
	if len(found) < 10 {
		t.Fatalf("only %d secrets", len(found))
	}

	logs, err := filepath.Glob(filepath.Join(c.dir, "logs", "*"))
	if err != nil || len(logs) < 5 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	debug, recorded := false, false
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		debug = debug || bytes.Contains(text, []byte(`"level":"DEBUG"`))
		recorded = recorded || filepath.Base(path) == "decisions.jsonl" && bytes.Contains(text, []byte(`"value":"(masked `))
		found.checkAbsent(t, filepath.Base(path), text)
	}
	if !debug {
		t.Error("no component logs at level debug")
	}
	if !recorded {
		t.Error("no file has a record with a masked variable")
	}
	for _, kinds := range []string{
		"events", "notices", "projects", "departments", "nodepools", "policies", "gpunodes", "workloadclocks", "extensions",
		"validatingwebhookconfigurations,mutatingwebhookconfigurations",
	} {
		found.checkAbsent(t, kinds, []byte(c.mustKubectl(t, "get", kinds, "--all-namespaces", "-o", "yaml")))
	}
}

// reconfigure changes the configurations of Sluice's components, and waits until they run with them.
func (c *policyTimeCluster) reconfigure(t *testing.T, change func(component string, config map[string]any)) {
	t.Helper()
	changed := map[string]map[string]any{}
	for component, namespace := range map[string]string{
		"webhook": v1alpha1.SystemNamespace, "lifecycle": v1alpha1.SystemNamespace, "gpuagent": v1alpha1.AgentNamespace,
	} {
		configMaps := c.clientset.CoreV1().ConfigMaps(namespace)
		configMap, err := configMaps.Get(t.Context(), component, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := map[string]any{}
		if err := yaml.Unmarshal([]byte(configMap.Data[component+".yaml"]), &config); err != nil {
			t.Fatal(err)
		}
		change(component, config)
		raw, err := yaml.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		configMap.Data[component+".yaml"] = string(raw)
		if _, err := configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{}
		if err := yaml.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		changed[component] = want
	}
	report, err := c.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	former := map[string]int{}
	for _, component := range report.Components {
		program, _, _ := strings.Cut(component.Name, "-")
		want, ok := changed[program]
		if !ok {
			continue
		}
		// The launcher writes the file, as a kubelet does.
		c.eventuallyAfterStep(t, func() error {
			raw, err := os.ReadFile(c.configurationFile(component.Name))
			if err != nil {
				return err
			}
			config := map[string]any{}
			if err := yaml.Unmarshal(raw, &config); err != nil {
				return err
			}
			for _, section := range []string{"logging", "decisions"} { // it changes addresses
				if !reflect.DeepEqual(config[section], want[section]) {
					return fmt.Errorf("the file of %s has the %s %v", component.Name, section, config[section])
				}
			}
			return nil
		})
		former[component.Name] = component.PID
		killProcess(t, component.PID)
	}
	for name, pid := range former {
		eventuallyLong(t, func() error { return c.restarted(t.Context(), name, pid) })
	}
	eventuallyLong(t, func() error { // the webhook answers
		probe := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		return c.adminClient.Create(t.Context(), probe, client.DryRunAll)
	})
}

// secretTexts are texts that must not appear, with the secret from which they are.
type secretTexts map[string]string

// add adds a secret: as it is, encoded, and of a key or a token a part that no other text has.
func (s secretTexts) add(name string, value []byte) {
	if len(value) < 8 {
		return
	}
	text := string(value)
	if block, _ := pem.Decode(value); block != nil {
		// A line of the key. The log of an error may have one line.
		text = strings.Split(text, "\n")[1]
	} else if parts := strings.Split(text, "."); len(parts) == 3 && strings.HasPrefix(text, "eyJ") {
		text = parts[2] // the signature
	}
	s[text] = name
	s[base64.StdEncoding.EncodeToString([]byte(text))] = name + " in base64"
	s[base64.StdEncoding.EncodeToString(value)[:16]] = name + " as in a Secret"
	if strings.HasPrefix(string(value), "-----BEGIN") || strings.HasPrefix(string(value), "eyJ") {
		delete(s, base64.StdEncoding.EncodeToString(value)[:16]) // the same of every key and token
	}
}

// addTokenFiles adds the tokens of the components, which are files below a folder.
func (s secretTexts) addTokenFiles(t *testing.T, dir string) {
	t.Helper()
	tokens := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() { // the cluster removes files while it runs
			if info, err := entry.Info(); err == nil && info.Size() < 8<<10 {
				if raw, err := os.ReadFile(path); err == nil && bytes.HasPrefix(raw, []byte("eyJ")) {
					tokens++
					s.add("token "+path, bytes.TrimSpace(raw))
				}
			}
		}
		return nil
	})
	if tokens < 3 {
		t.Errorf("%d tokens of components below %s", tokens, dir)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s secretTexts) checkAbsent(t *testing.T, where string, text []byte) {
	t.Helper()
	for name, at := range s.find(text) {
		t.Errorf("%s contains %s: ...%s...", where, name, text[max(0, at-200):at])
	}
}

// find returns where a text contains which secrets.
func (s secretTexts) find(text []byte) map[string]int {
	found := map[string]int{}
	for secret, name := range s {
		if at := bytes.Index(text, []byte(secret)); at >= 0 {
			found[name] = at
		}
	}
	return found
}

func TestSecretTextsAreFound(t *testing.T) {
	valid := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("a key that is long enough for two lines of a file")})
	s := secretTexts{}
	s.add("password", []byte("correct horse"))
	s.add("token", []byte("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"))
	s.add("key", valid)
	for text, want := range map[string]string{
		`{"msg":"login failed","password":"correct horse"}`:                                       "password",
		"data:\n  password: " + base64.StdEncoding.EncodeToString([]byte("correct horse")) + "\n": "password as in a Secret",
		"Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl":                 "token",
		`"key":"` + strings.ReplaceAll(string(valid), "\n", `\n`) + `"`:                           "key",
	} {
		if _, ok := s.find([]byte(text))[want]; !ok {
			t.Errorf("%s: found %v, want %s", text, s.find([]byte(text)), want)
		}
	}
	if found := s.find([]byte("a log without secrets: tls.key is invalid, user eyJhbGci")); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}
