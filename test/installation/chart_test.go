// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	lifecycleconfig "sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/registration"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
	"sluice.dev/webhook"
)

// helm runs the pinned Helm, which keeps nothing outside of the test's folder.
func helm(t *testing.T, arguments ...string) (stdout string, err error) {
	t.Helper()
	paths, err := clustertest.Programs(t.Context(), "helm")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), paths["helm"], arguments...)
	home := t.TempDir()
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/nowhere")
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		return output.String(), &helmError{problems.String()}
	}
	return output.String(), nil
}

// helmError is what Helm reports to its user.
type helmError struct{ text string }

func (e *helmError) Error() string { return e.text }

// valuesFile writes values in YAML.
func valuesFile(t *testing.T, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// render returns the objects of the chart with values.
func render(t *testing.T, values string) map[string]*unstructured.Unstructured {
	t.Helper()
	output, err := helm(t, "template", "sluice", chartFolder, "-n", v1alpha1.SystemNamespace, "--kube-version", oldestKubernetes, "-f", valuesFile(t, values))
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq("\n"+output, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		if objects[identity(object)] != nil {
			t.Errorf("%s is there twice", identity(object))
		}
		objects[identity(object)] = object
	}
	return objects
}

// withoutChart returns an object without what the chart adds to the kustomizations: an annotation that keeps CRDs, and
// one that replaces the pods of a changed configuration. Configuration files are compared as what they say; an empty
// node selector is none.
func withoutChart(t *testing.T, object *unstructured.Unstructured) map[string]any {
	t.Helper()
	object = object.DeepCopy()
	for _, path := range [][]string{
		{"metadata", "annotations", "helm.sh/resource-policy"},
		{"spec", "template", "metadata", "annotations", "checksum/configuration"},
	} {
		unstructured.RemoveNestedField(object.Object, path...)
	}
	selector := []string{"spec", "template", "spec", "nodeSelector"}
	if labels, found, _ := unstructured.NestedMap(object.Object, selector...); found && len(labels) == 0 {
		unstructured.RemoveNestedField(object.Object, selector...)
	}
	if object.GetKind() == "ConfigMap" {
		data, _, _ := unstructured.NestedStringMap(object.Object, "data")
		for key, text := range data {
			var content any
			if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedField(object.Object, content, "data", key); err != nil {
				t.Fatal(err)
			}
		}
	}
	raw, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	var plain map[string]any
	if err := json.Unmarshal(raw, &plain); err != nil {
		t.Fatal(err)
	}
	if metadata := plain["metadata"].(map[string]any); len(object.GetAnnotations()) == 0 {
		delete(metadata, "annotations")
	}
	return plain
}

// The chart is equal to the overlays, object by object. Helm itself creates the namespace of the release.
func TestChartEqualsOverlays(t *testing.T) {
	for _, tc := range []struct {
		overlay, values string
		components      []string
	}{
		{manifests.Production, "{}", nil},
		{manifests.Minimal, "{agent: {enabled: false}, webhook: {replicas: 1}, lifecycle: {replicas: 1}}", nil},
		{manifests.WithoutOperator, `agent:
  nodeSelector: {nvidia.com/gpu.deploy.client: null}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: sluice.dev/node-pool, operator: Exists}]}]`, nil},
		{manifests.Production, "{openshift: {scc: true}}", []string{manifests.OpenShift}},
		{manifests.Production, "{certificates: {issuer: CertManager}}", []string{manifests.CertManager}},
		{manifests.Production, "{monitoring: {enabled: true}}", []string{manifests.Monitoring}},
	} {
		wanted := buildWith(t, tc.overlay, append(tc.components, manifests.Uninstall))
		got := render(t, tc.values)
		for _, object := range wanted {
			if object.GetKind() == "Job" && object.GetName() == "certificates" {
				object = object.DeepCopy()
				object.SetName("certificates-1") // the revision of the release, since a Job cannot be changed
			}
			key := identity(object)
			if object.GetKind() == "Namespace" && object.GetName() == v1alpha1.SystemNamespace {
				continue
			}
			if got[key] == nil {
				t.Errorf("%s %v: the chart lacks %s", tc.overlay, tc.components, key)
				continue
			}
			if diff := cmp.Diff(withoutChart(t, object), withoutChart(t, got[key])); diff != "" {
				t.Errorf("%s %v: %s (-overlay +chart)\n%s", tc.overlay, tc.components, key, diff)
			}
			delete(got, key)
		}
		for key := range got {
			t.Errorf("%s %v: only the chart has %s", tc.overlay, tc.components, key)
		}
	}
}

// buildWith is build with components.
func buildWith(t *testing.T, overlay string, components []string) []*unstructured.Unstructured {
	t.Helper()
	if len(components) == 0 {
		return buildObjects(t, overlay)
	}
	objects, err := manifests.BuildWith(overlay, components...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// Each value changes what it says.
func TestChartValues(t *testing.T) {
	defaults := render(t, "{}")
	tests := map[string]struct {
		values string
		check  func(t *testing.T, got map[string]*unstructured.Unstructured)
	}{
		"images": {"image: {registry: registry.example.org/sluice, tag: v1.2.3, pullSecrets: [pull]}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for _, pod := range podsOf(t, got) {
				image := "sluice-" + pod.name
				switch pod.name {
				case "sluice-uninstall":
					image = "sluice"
				case "certificates", "certificates-1":
					image = "sluice-webhook"
				}
				if want := "registry.example.org/sluice/" + image + ":v1.2.3"; pod.spec.Containers[0].Image != want {
					t.Errorf("image %s, want %s", pod.spec.Containers[0].Image, want)
				}
				if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "pull"}}, pod.spec.ImagePullSecrets); diff != "" {
					t.Errorf("%s (-want +got)\n%s", pod.name, diff)
				}
			}
		}},
		"placement": {
			"{nodeSelector: {pool: system}, tolerations: [{key: x, operator: Exists}], affinity: {nodeAffinity: {}}, agent: {nodeSelector: {a: b}, runtimeClassName: ''}}",
			func(t *testing.T, got map[string]*unstructured.Unstructured) {
				for _, pod := range podsOf(t, got) {
					switch {
					case pod.name == "gpuagent":
						if pod.spec.NodeSelector["a"] != "b" || pod.spec.RuntimeClassName != nil {
							t.Errorf("the agent has %v and runtime class %v", pod.spec.NodeSelector, pod.spec.RuntimeClassName)
						}
					case pod.spec.NodeSelector["pool"] != "system" || len(pod.spec.Tolerations) != 1 || pod.spec.Affinity == nil:
						t.Errorf("%s has %v, %v, %v", pod.name, pod.spec.NodeSelector, pod.spec.Tolerations, pod.spec.Affinity)
					}
				}
			},
		},
		"memory": {"webhook: {goMemoryLimit: 1GiB, resources: {limits: {memory: 2Gi}}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for _, pod := range podsOf(t, got) {
				if c := pod.spec.Containers[0]; pod.name == "webhook" && (c.Env[0].Value != "1GiB" || c.Resources.Limits.Memory().String() != "2Gi" || c.Resources.Requests.Memory().String() != "384Mi") {
					t.Errorf("%v, %v", c.Env, c.Resources)
				}
			}
		}},
		"configuration": {
			"{gpuPodsOutside: Deny, webhook: {configuration: {policyTimeout: 100ms, logging: {level: debug}}}, lifecycle: {configuration: {deviceClasses: [gpu.example.org], maxLabels: 100}}}",
			func(t *testing.T, got map[string]*unstructured.Unstructured) {
				var w webhook.Config
				var l lifecycleconfig.Config
				parseFile(t, got, "webhook", &w)
				parseFile(t, got, "lifecycle", &l)
				if w.PolicyTimeout.Duration != 100*time.Millisecond || w.Logging.Level != "debug" || w.Listen != ":9443" {
					t.Errorf("webhook: %+v", w)
				}
				if l.GPUPodsOutside != lifecycleconfig.Deny || !slices.Equal(l.DeviceClasses, []string{"gpu.example.org"}) || l.MaxLabels != 100 || l.Health != ":8081" {
					t.Errorf("lifecycle: %+v", l)
				}
				for name, changed := range map[string]bool{"webhook": true, "lifecycle": true, "gpuagent": false} {
					kind := map[bool]string{true: "DaemonSet.apps sluice-agent ", false: "Deployment.apps sluice-system "}[name == "gpuagent"]
					path := []string{"spec", "template", "metadata", "annotations", "checksum/configuration"}
					before, _, _ := unstructured.NestedString(defaults[kind+name].Object, path...)
					after, _, _ := unstructured.NestedString(got[kind+name].Object, path...)
					if before == "" || (before != after) != changed {
						t.Errorf("%s: the pods are replaced: %v, want %v", name, before != after, changed)
					}
				}
			},
		},
		// A key whose fields are all comments is null in YAML.
		"empty configuration": {"{webhook: {configuration: null}, lifecycle: {configuration: null}, agent: {configuration: null}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for key, object := range got {
				if diff := cmp.Diff(defaults[key].Object, object.Object); diff != "" {
					t.Errorf("%s (-default +got)\n%s", key, diff)
				}
			}
		}},
		// Two issuers would replace each other's certificates.
		"one issuer": {"{certificates: {issuer: CertManager}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for key, object := range got {
				if object.GetKind() != "Secret" && strings.HasPrefix(strings.TrimPrefix(object.GetName(), "sluice-"), "certificates") {
					t.Errorf("there is %s", key)
				}
			}
		}},
		"added kinds": {`workloadKinds: [{kind: Trainer.ml.example.org, resource: trainers, version: v1, paths: ["spec.workers[*].template"]}]`, func(t *testing.T, got map[string]*unstructured.Unstructured) {
			var l lifecycleconfig.Config
			parseFile(t, got, "lifecycle", &l)
			var live registration.Configurations
			decode(t, got["ValidatingWebhookConfiguration.admissionregistration.k8s.io  sluice"], &live.Validating)
			decode(t, got["MutatingWebhookConfiguration.admissionregistration.k8s.io  sluice"], &live.Mutating)
			shipped, err := registration.Shipped(manifests.Files)
			if err != nil || len(l.PodTemplates) != 1 {
				t.Fatalf("%v, podTemplates %v", err, l.PodTemplates)
			}
			for _, difference := range registration.Compare(live, shipped, workloadkind.AddedRules(l.PodTemplates)) {
				if !strings.HasSuffix(difference.Message, "has no caBundle, so that the API server does not trust it") {
					t.Error(difference.Message)
				}
			}
		}},
		// The Prometheus of kube-prometheus-stack selects by the label of its release.
		"labels of monitoring": {"{monitoring: {enabled: true, labels: {release: kube-prometheus-stack}}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			count := 0
			for key, object := range got {
				if object.GroupVersionKind().Group != "monitoring.coreos.com" {
					continue
				}
				count++
				if labels := object.GetLabels(); labels["release"] != "kube-prometheus-stack" || labels["app.kubernetes.io/part-of"] != "sluice" {
					t.Errorf("%s has the labels %v", key, labels)
				}
			}
			if count != 4 {
				t.Errorf("%d objects of monitoring", count)
			}
		}},
		"no network policies": {"networkPolicies: {enabled: false}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for key := range got {
				if strings.HasPrefix(key, "NetworkPolicy") {
					t.Errorf("there is %s", key)
				}
			}
		}},
		"CRDs managed elsewhere": {"{crds: {enabled: false}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for key, object := range got {
				if object.GetKind() == "CustomResourceDefinition" {
					t.Errorf("there is %s", key)
				}
			}
		}},
		"dashboards": {"{monitoring: {dashboards: {enabled: true, labels: {team: gpu}}}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for _, shipped := range buildObjects(t, manifests.Dashboards) {
				object := got[identity(shipped)]
				if object == nil {
					t.Errorf("the chart lacks %s", identity(shipped))
					continue
				}
				if diff := cmp.Diff(shipped.Object["data"], object.Object["data"]); diff != "" {
					t.Errorf("%s (-shipped +chart)\n%s", identity(shipped), diff)
				}
				if labels := object.GetLabels(); labels["grafana_dashboard"] != "1" || labels["team"] != "gpu" {
					t.Errorf("%s has the labels %v", identity(shipped), labels)
				}
				if size := len(fmt.Sprint(object.Object["data"])); size > 128<<10 {
					t.Errorf("%s has %d bytes", identity(shipped), size)
				}
			}
		}},
		"no hook": {"{uninstall: {hook: false}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for key, object := range got {
				if object.GetAnnotations()["helm.sh/hook"] != "" {
					t.Errorf("there is %s", key)
				}
			}
		}},
		"no agent": {"{agent: {enabled: false}, monitoring: {enabled: true}, openshift: {scc: true}}", func(t *testing.T, got map[string]*unstructured.Unstructured) {
			for key := range got {
				if strings.Contains(key, "gpuagent") || strings.Contains(key, v1alpha1.AgentNamespace) {
					t.Errorf("there is %s", key)
				}
			}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { tc.check(t, render(t, tc.values)) })
	}
}

// podsOf returns the pods of rendered objects.
func podsOf(t *testing.T, objects map[string]*unstructured.Unstructured) (pods []podTemplate) {
	t.Helper()
	for _, object := range objects {
		if slices.Contains([]string{"Deployment", "DaemonSet", "Job", "CronJob"}, object.GetKind()) {
			var pod corev1.PodTemplateSpec
			template, found, _ := unstructured.NestedMap(object.Object, "spec", "template")
			if !found {
				template, _, _ = unstructured.NestedMap(object.Object, "spec", "jobTemplate", "spec", "template")
			}
			decode(t, &unstructured.Unstructured{Object: template}, &pod)
			pods = append(pods, podTemplate{object.GetKind(), object.GetName(), object.GetNamespace(), pod.ObjectMeta, pod.Spec})
		}
	}
	if len(pods) != 6 {
		t.Fatalf("%d kinds of pods", len(pods))
	}
	return pods
}

// parseFile reads the configuration file of a component as the component does.
func parseFile(t *testing.T, objects map[string]*unstructured.Unstructured, name string, into config.File) {
	t.Helper()
	text, _, _ := unstructured.NestedString(objects["ConfigMap "+v1alpha1.SystemNamespace+" "+name].Object, "data", name+".yaml")
	if err := config.Parse([]byte(text), into); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
}

// A wrong value is refused with its name.
func TestChartRefusesWrongValues(t *testing.T) {
	for values, want := range map[string][]string{
		"{replicas: 3}":                                      {"additional properties 'replicas' not allowed"},
		"{webhook: {replica: 3}}":                            {"/webhook", "'replica'"},
		"{webhook: {replicas: 0}}":                           {"/webhook/replicas", "minimum"},
		"{image: {tag: 'a b'}}":                              {"/image/tag", "pattern"},
		"{image: {registry: 'example.org/'}}":                {"/image/registry", "pattern"},
		"{gpuPodsOutside: Refuse}":                           {"/gpuPodsOutside", "'Warn', 'Deny'"},
		"{certificates: {issuer: Vault}}":                    {"/certificates/issuer", "'Sluice', 'CertManager'"},
		"{agent: {enabled: 'no'}}":                           {"/agent/enabled", "want boolean"},
		"{webhook: {configuration: {listen: ':1'}}}":         {"/webhook/configuration/listen", "false schema"},
		"{lifecycle: {configuration: {gpuPodsOutside: No}}}": {"/lifecycle/configuration/gpuPodsOutside", "false schema"},
		"{webhook: {goMemoryLimit: 320Mi}}":                  {"/webhook/goMemoryLimit", "pattern"},
		"{tolerations: [{key: a, operator: In}]}":            {"/tolerations/0/operator", "'Exists', 'Equal'"},
	} {
		_, err := helm(t, "template", "sluice", chartFolder, "-n", v1alpha1.SystemNamespace, "-f", valuesFile(t, values))
		if err == nil {
			t.Errorf("%s is accepted", values)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not contain %s:\n%v", values, part, err)
			}
		}
	}
	for _, tc := range []struct {
		name, want string
		arguments  []string
	}{
		{"another namespace", "add --namespace sluice-system --create-namespace", []string{"-n", "default"}},
		{"an older Kubernetes", "requires kubeVersion: >=1.32.0-0", []string{"-n", v1alpha1.SystemNamespace, "--kube-version", "1.31.9"}},
	} {
		if _, err := helm(t, append([]string{"template", "sluice", chartFolder}, tc.arguments...)...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestChartLint(t *testing.T) {
	output, err := helm(t, "lint", chartFolder, "-n", v1alpha1.SystemNamespace, "--strict")
	if err != nil || !strings.Contains(output, "1 chart(s) linted, 0 chart(s) failed") {
		t.Errorf("%v\n%s", err, output)
	}
}

// Helm keeps each release in a Secret, which has at most 1 MiB: the chart with its files and the rendered objects, as
// JSON, compressed, in base64. A tenth is left for the values of users.
func TestChartReleaseFitsSecret(t *testing.T) {
	type file struct {
		Name string `json:"name"`
		Data []byte `json:"data"`
	}
	var release struct {
		Chart struct {
			Templates []file `json:"templates"`
			Schema    []byte `json:"schema"`
			Values    []byte `json:"values"`
		} `json:"chart"`
		Manifest string `json:"manifest"`
	}
	err := fs.WalkDir(os.DirFS(chartFolder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(filepath.Join(chartFolder, path))
		release.Chart.Templates = append(release.Chart.Templates, file{path, raw})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	values := "{certificates: {issuer: CertManager}, openshift: {scc: true}, monitoring: {enabled: true, dashboards: {enabled: true}}}"
	if release.Manifest, err = helm(t, "template", "sluice", chartFolder, "-n", v1alpha1.SystemNamespace, "-f", valuesFile(t, values)); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(release)
	if err != nil {
		t.Fatal(err)
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	size := base64.StdEncoding.EncodedLen(compressed.Len())
	t.Logf("a release takes %d KiB of %d", size>>10, corev1.MaxSecretSize>>10)
	if size > corev1.MaxSecretSize*9/10 {
		t.Errorf("a release takes %d bytes; a Secret has %d", size, corev1.MaxSecretSize)
	}
}
