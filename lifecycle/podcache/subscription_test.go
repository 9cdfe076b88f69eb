// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"sluice.dev/api/workload"
)

// changeLog records changes as text.
type changeLog struct {
	mutex  sync.Mutex
	lines  []string
	cancel func()
}

func newChangeLog(w *testServer) *changeLog {
	s := &changeLog{}
	s.cancel = w.store.Subscribe(func(c Change) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		what := "changed"
		switch {
		case c.Before == nil:
			what = "new"
		case c.After == nil:
			what = "gone"
		}
		s.lines = append(s.lines, what+" "+c.Pod().Name)
	})
	return s
}

func (s *changeLog) read() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.lines)
}

func (s *changeLog) waitFor(w *testServer, want ...string) {
	w.Helper()
	w.waitUntil(func() bool { return cmp.Equal(want, s.read()) }, func() any { return cmp.Diff(want, s.read()) })
}

func TestSubscribe(t *testing.T) {
	w := newTestServer(t, Settings{}, newGPUPod("a")).startStore().waitForSync()
	changes := newChangeLog(w)
	changes.waitFor(w, "new a")
	w.putPods(newGPUPod("b"))
	w.putPods(newGPUPod("b").onNode("n").withPhase(corev1.PodRunning))
	w.putPods(newGPUPod("b").onNode("n").withPhase(corev1.PodRunning).withAnnotation("other", "value")) // changes no field of the record
	w.putPods(newPod("cpu"))
	w.deletePod("a")
	changes.waitFor(w, "new a", "new b", "changed b", "gone a")

	again := newGPUPod("b")
	again.UID = "another"
	w.putPods(again) // deleted and created again, with one event
	changes.waitFor(w, "new a", "new b", "changed b", "gone a", "gone b", "new b")
	if _, ok := w.store.ByUID("uid-b"); ok {
		t.Error("the replaced pod is still found by its UID")
	}

	changes.cancel()
	w.putPods(newGPUPod("c"))
	w.waitForPods("b", "c")
	if got := changes.read(); len(got) != 6 {
		t.Errorf("after cancel the handler got %v", got[6:])
	}
}

// A handler that subscribes while pods are added gets each pod exactly once.
func TestSubscribeDeliversEachChangeOnce(t *testing.T) {
	s := newStore()
	const pods = 2000
	var readers sync.WaitGroup
	readers.Go(func() {
		for i := range pods {
			f, ok := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(newGPUPod(string(rune('a'+i%26)) + time.Duration(i).String()).Pod)
			if !ok {
				panic("not a GPU pod")
			}
			s.upsert(&f)
		}
	})
	counts := make([]map[types.NamespacedName]int, 8)
	for i := range counts {
		counts[i] = map[types.NamespacedName]int{}
		readers.Go(func() {
			s.Subscribe(func(c Change) { counts[i][c.Pod().Key()]++ })
			for range s.InNamespace("lab") { // races with the writer
				continue
			}
		})
	}
	readers.Wait()
	for i, count := range counts {
		if len(count) != pods {
			t.Errorf("handler %d got %d pods, want %d", i, len(count), pods)
		}
		for key, n := range count {
			if n != 1 {
				t.Fatalf("handler %d got %s %d times", i, key, n)
			}
		}
	}
}

func TestSourceEnqueuesRequests(t *testing.T) {
	w := newTestServer(t, Settings{}, newGPUPod("a").controlledBy("Job", "train"), newGPUPod("b").controlledBy("Job", "train"))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	defer queue.ShutDown()
	source := Source(w.store, func(c Change) []types.NamespacedName {
		return []types.NamespacedName{{Namespace: c.Pod().Namespace, Name: c.Pod().Controller.Name}}
	})
	if err := source.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w.startStore()
	if err := source.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if key, _ := queue.Get(); key.String() != "lab/train" || queue.Len() != 0 {
		t.Errorf("enqueued %s and %d more, want only lab/train", key, queue.Len())
	}
}

func TestIndices(t *testing.T) {
	s := newStore()
	put := func(p podBuilder) {
		f, ok := (&podReader{gpuNames: workload.DefaultResourceUnits()}).read(p.Pod)
		if !ok {
			t.Fatal("not a GPU pod")
		}
		s.upsert(&f)
	}
	elsewhere := newGPUPod("z")
	elsewhere.Namespace = "other"
	put(newGPUPod("a").controlledBy("Job", "x"))
	put(newGPUPod("b").controlledBy("Job", "x").onNode("n1"))
	put(newGPUPod("c").controlledBy("Job", "y").onNode("n1"))
	put(newGPUPod("d"))
	put(elsewhere)
	put(newGPUPod("a").controlledBy("Job", "x").onNode("n2"))
	s.remove(podKey{unique.Make("other"), "z"})
	put(newGPUPod("c").controlledBy("Job", "x").onNode("n2")) // adopted and moved; real pods never are
	got := map[string][]string{
		"lab": sortedNames(s.InNamespace("lab")), "other": sortedNames(s.InNamespace("other")),
		"x": sortedNames(s.ControlledBy("uid-x")), "y": sortedNames(s.ControlledBy("uid-y")), "none": sortedNames(s.ControlledBy("")),
		"n1": sortedNames(s.OnNode("n1")), "n2": sortedNames(s.OnNode("n2")), "nowhere": sortedNames(s.OnNode("")),
	}
	want := map[string][]string{
		"lab": {"a", "b", "c", "d"}, "other": {}, "x": {"a", "b", "c"}, "y": {}, "none": {}, "n1": {"b"}, "n2": {"a", "c"}, "nowhere": {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if p, ok := s.Get(types.NamespacedName{Namespace: "lab", Name: "a"}); !ok || p.Node != "n2" || s.Len() != 4 {
		t.Errorf("got %+v of %d", p, s.Len())
	}
	for _, k := range s.keysNotIn(nil) {
		s.remove(k)
	}
	if left := len(s.byUID) + len(s.byNamespace.records) + len(s.byController.records) + len(s.byNode.records); left != 0 {
		t.Errorf("%d entries remain in the indices of an empty store", left)
	}
}
