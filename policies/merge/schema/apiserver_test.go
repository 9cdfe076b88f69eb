// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// apiServer is the API server, with a namespace for one test.
type apiServer struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
}

func startAPIServer(t *testing.T) apiServer {
	t.Helper()
	c := clustertest.Start(t)
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return apiServer{t, client, clustertest.Namespace(t, c)}
}

// createPod returns a pod as webhooks see it.
func (s apiServer) createPod(pod map[string]any) map[string]any {
	s.t.Helper()
	body, err := json.Marshal(pod)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := s.client.CoreV1().RESTClient().Post().Namespace(s.namespace).Resource("pods").
		Param("dryRun", "All").Param("fieldValidation", "Strict").Body(body).DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatalf("%v: %s", err, answer)
	}
	return decodeObject(s.t, answer)
}

func decodeObject(t *testing.T, object []byte) map[string]any {
	t.Helper()
	var into map[string]any
	if err := json.Unmarshal(object, &into); err != nil {
		t.Fatal(err)
	}
	return into
}

// corpusPods returns the pods of testdata/pods.yaml.
func corpusPods(t *testing.T) []map[string]any {
	t.Helper()
	file, err := os.ReadFile("testdata/pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var pods []map[string]any
	for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
		pod := map[string]any{"apiVersion": "v1", "kind": "Pod"}
		if err := yaml.UnmarshalStrict(document, &pod); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	return pods
}

func podName(pod map[string]any) string {
	return AsString(AsMap(pod["metadata"])["name"])
}

// authoredLeaves returns the leaves of a pod's labels, annotations and spec that its
// author wrote.
func authoredLeaves(c ClusterDefaults, pod map[string]any) map[string]any {
	found := map[string]any{}
	note := func(field *Field, parent any) {
		at := Location{Object: pod, Parent: AsMap(parent)}
		maps.Insert(found, c.authoredLeaves(field, at, AsMap(parent)[field.Name]))
	}
	metadata := Pod().Field("metadata").Type
	note(metadata.Field("labels"), pod["metadata"])
	note(metadata.Field("annotations"), pod["metadata"])
	note(Pod().Field("spec"), pod)
	return found
}

// Fields that the API server sets are open; the author's are not.
func TestOnlyDefaultedPodFieldsAreOpen(t *testing.T) {
	s := startAPIServer(t)
	for _, pod := range corpusPods(t) {
		t.Run(podName(pod), func(t *testing.T) {
			s.t = t
			if diff := cmp.Diff(allLeaves(pod), authoredLeaves(ClusterDefaults{}, s.createPod(pod))); diff != "" {
				t.Errorf("taken for the author's (-submitted +returned):\n%s", diff)
			}
		})
	}
}

// allLeaves returns all leaves of a pod.
func allLeaves(pod map[string]any) map[string]any {
	unruled := rulesByField
	rulesByField = nil
	defer func() { rulesByField = unruled }()
	return authoredLeaves(ClusterDefaults{}, pod)
}

// A value that differs from the API server's is the author's.
func TestNonDefaultPodValuesAreAuthored(t *testing.T) {
	s := startAPIServer(t)
	for _, pod := range corpusPods(t) {
		returned := s.createPod(pod)
		before, own := authoredLeaves(ClusterDefaults{}, returned), allLeaves(pod)
		for path, v := range allLeaves(returned) {
			if _, ok := own[path]; ok || isAlwaysDefaulted(podName(pod), path) {
				continue
			}
			changed := decodeObject(t, []byte(marshal(t, returned)))
			if !replaceAt(changed, path, v) {
				t.Fatalf("%s: %s = %v cannot be changed", podName(pod), path, v)
			}
			if cmp.Equal(before, authoredLeaves(ClusterDefaults{}, changed)) {
				t.Errorf("%s: %s is open, whatever it is", podName(pod), path)
			}
		}
	}
}

// isAlwaysDefaulted reports whether the API server admits no other value, or sets a
// random one.
func isAlwaysDefaulted(pod, path string) bool {
	return pod == "classed" && (path == "spec.priority" || path == "spec.preemptionPolicy") ||
		strings.HasPrefix(path, "spec.volumes[") && strings.HasSuffix(path, "].name") ||
		strings.Contains(path, ".volumeMounts[") && strings.HasSuffix(path, "].name")
}

// replaceAt sets another value at a path such as spec.containers[0].image.
func replaceAt(in any, path string, v any) bool {
	head, tail, deeper := splitPath(path)
	switch in := in.(type) {
	case map[string]any:
		if deeper {
			return replaceAt(in[head], tail, v)
		}
		in[head] = otherValue(v)
		return true
	case []any:
		var i int
		if err := json.Unmarshal([]byte(head), &i); err != nil || i >= len(in) {
			return false
		}
		if deeper {
			return replaceAt(in[i], tail, v)
		}
		in[i] = otherValue(v)
		return true
	}
	return false
}

func splitPath(path string) (head, tail string, deeper bool) {
	if rest, ok := strings.CutPrefix(path, "["); ok {
		head, tail, _ = strings.Cut(rest, "]")
		return head, strings.TrimPrefix(tail, "."), tail != ""
	}
	i := strings.IndexAny(path, ".[")
	if i < 0 {
		return path, "", false
	}
	return path[:i], strings.TrimPrefix(path[i:], "."), true
}

func otherValue(v any) any {
	switch v := v.(type) {
	case float64:
		return v + 1
	case bool:
		return !v
	case string:
		return v + "9"
	}
	return "other"
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	written, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(written)
}

// The API server sets a value for every row of the table.
func TestEveryRuleMatchesTheAPIServer(t *testing.T) {
	s := startAPIServer(t)
	seen := map[string]bool{}
	see := func(pod map[string]any, c ClusterDefaults) {
		for field, rule := range rulesByField {
			rulesByField[field] = func(c ClusterDefaults, at Location, v any) bool {
				is := rule(c, at, v)
				if is {
					seen[field.ID()] = true
				}
				return is
			}
			defer func() { rulesByField[field] = rule }()
		}
		authoredLeaves(c, pod)
	}
	for _, pod := range corpusPods(t) {
		see(s.createPod(pod), ClusterDefaults{})
	}
	see(s.podWithLimitRange(), ClusterDefaults{})
	see(s.podWithPriorityClass(), ClusterDefaults{DefaultPriorityClass: "standard"})
	see(s.podWithOverhead(), ClusterDefaults{})
	see(s.podWithEphemeralContainer(), ClusterDefaults{})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(podRules)), slices.Sorted(maps.Keys(seen))); diff != "" {
		t.Errorf("rows (-of the table +seen):\n%s", diff)
	}
}

var minimalPod = map[string]any{
	"apiVersion": "v1", "kind": "Pod",
	"metadata": map[string]any{"name": "least"},
	"spec": map[string]any{
		"containers":     []any{map[string]any{"name": "main", "image": "main"}},
		"initContainers": []any{map[string]any{"name": "prepare", "image": "main", "resources": map[string]any{"limits": map[string]any{"cpu": "2"}}}},
	},
}

// Values that come from a LimitRange, a default PriorityClass, a RuntimeClass, or the
// addition of an ephemeral container, are open.
func TestClusterObjectDefaultsAreOpen(t *testing.T) {
	s := startAPIServer(t)
	want := allLeaves(minimalPod)
	t.Run("LimitRange", func(t *testing.T) {
		s.t = t
		returned := s.podWithLimitRange()
		if diff := cmp.Diff(want, authoredLeaves(ClusterDefaults{}, returned)); diff != "" {
			t.Errorf("taken for the author's (-submitted +returned):\n%s", diff)
		}
		delete(AsMap(AsMap(returned["metadata"])["annotations"]), limitRangerAnnotation)
		if cmp.Equal(want, authoredLeaves(ClusterDefaults{}, returned)) {
			t.Error("without the plugin's note they are the author's")
		}
	})
	t.Run("PriorityClass", func(t *testing.T) {
		s.t = t
		returned := s.podWithPriorityClass()
		if diff := cmp.Diff(want, authoredLeaves(ClusterDefaults{DefaultPriorityClass: "standard"}, returned)); diff != "" {
			t.Errorf("taken for the author's (-submitted +returned):\n%s", diff)
		}
		if cmp.Equal(want, authoredLeaves(ClusterDefaults{DefaultPriorityClass: "other"}, returned)) {
			t.Error("another class is the author's")
		}
	})
	t.Run("RuntimeClass", func(t *testing.T) {
		s.t = t
		want := maps.Clone(want)
		want["spec.runtimeClassName"] = "heavy"
		if diff := cmp.Diff(want, authoredLeaves(ClusterDefaults{}, s.podWithOverhead())); diff != "" {
			t.Errorf("taken for the author's (-submitted +returned):\n%s", diff)
		}
	})
	t.Run("ephemeral container", func(t *testing.T) {
		s.t = t
		want := maps.Clone(want)
		want["spec.ephemeralContainers[0].name"], want["spec.ephemeralContainers[0].image"] = "debug", "debug"
		if diff := cmp.Diff(want, authoredLeaves(ClusterDefaults{}, s.podWithEphemeralContainer())); diff != "" {
			t.Errorf("taken for the author's (-submitted +returned):\n%s", diff)
		}
	})
}

func (s apiServer) podWithLimitRange() map[string]any {
	s.t.Helper()
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	limits := s.client.CoreV1().LimitRanges(s.namespace)
	_, err := limits.Create(s.t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: amounts("3", "3Gi"), DefaultRequest: amounts("1", "1Gi"),
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer s.delete("LimitRange", func() error { return limits.Delete(s.t.Context(), "limits", metav1.DeleteOptions{}) })
	var returned map[string]any
	clustertest.Eventually(s.t, func() error { // until the plugin's informer has it
		returned = s.createPod(minimalPod)
		return errorUnless(strings.Contains(marshal(s.t, returned), limitRangerAnnotation), "the LimitRange has no effect yet")
	})
	return returned
}

func (s apiServer) podWithPriorityClass() map[string]any {
	s.t.Helper()
	classes := s.client.SchedulingV1().PriorityClasses()
	_, err := classes.Create(s.t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Value: 7, GlobalDefault: true,
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer s.delete("PriorityClass", func() error { return classes.Delete(s.t.Context(), "standard", metav1.DeleteOptions{}) })
	var returned map[string]any
	clustertest.Eventually(s.t, func() error {
		returned = s.createPod(minimalPod)
		return errorUnless(strings.Contains(marshal(s.t, returned), `"standard"`), "the PriorityClass has no effect yet")
	})
	return returned
}

func (s apiServer) podWithOverhead() map[string]any {
	s.t.Helper()
	classes := s.client.NodeV1().RuntimeClasses()
	_, err := classes.Create(s.t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "heavy",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer s.delete("RuntimeClass", func() error { return classes.Delete(s.t.Context(), "heavy", metav1.DeleteOptions{}) })
	pod := decodeObject(s.t, []byte(marshal(s.t, minimalPod)))
	AsMap(pod["spec"])["runtimeClassName"] = "heavy"
	return s.createPod(pod)
}

func (s apiServer) podWithEphemeralContainer() map[string]any {
	s.t.Helper()
	pods := s.client.CoreV1().RESTClient()
	if err := pods.Post().Namespace(s.namespace).Resource("pods").Body([]byte(marshal(s.t, minimalPod))).Do(s.t.Context()).Error(); err != nil {
		s.t.Fatal(err)
	}
	defer s.delete("pod", func() error {
		return s.client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), "least", *metav1.NewDeleteOptions(0))
	})
	pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.t.Context(), "least", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	pod.ResourceVersion = "" // whatever the scheduler makes of it meanwhile
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debug"}},
	}
	answer, err := pods.Put().Namespace(s.namespace).Resource("pods").Name("least").SubResource("ephemeralcontainers").
		Body(pod).DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatalf("%v: %s", err, answer)
	}
	return decodeObject(s.t, answer)
}

func (s apiServer) delete(what string, do func() error) {
	if err := do(); err != nil {
		s.t.Errorf("delete %s: %v", what, err)
	}
}

func errorUnless(ok bool, complaint string) error {
	if ok {
		return nil
	}
	return errors.New(complaint)
}
