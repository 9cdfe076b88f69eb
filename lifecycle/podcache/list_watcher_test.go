// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeErrorStatus responds with an error of the API server.
func writeErrorStatus(w http.ResponseWriter, status *apierrors.StatusError) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.ErrStatus.Code))
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"simulated failure"}`, status.ErrStatus.Reason, status.ErrStatus.Code)
	return true
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// listModes are the two ways to list all pods.
var listModes = map[string]bool{"streamed": false, "in pages": true}

func TestListWatch(t *testing.T) {
	for mode, pages := range listModes {
		t.Run(mode, func(t *testing.T) {
			w := newTestServer(t, Settings{PageSize: 2}, newGPUPod("a"), newGPUPod("b"), newGPUPod("c"), newGPUPod("d"), newGPUPod("e"), newPod("cpu"), newGPUPod("over").withPhase(corev1.PodSucceeded))
			w.server.WithoutWatchList = pages
			w.startStore().waitForSync().waitForPods("a", "b", "c", "d", "e")
			if lists := w.countRequests("list"); (lists > 0) != pages || (pages && lists < 3) {
				t.Errorf("the pods were listed in %d pages", lists)
			}
			w.putPods(newGPUPod("f"), newPod("cpu2"))
			w.waitForPods("a", "b", "c", "d", "e", "f")
			w.deletePod("a")
			w.putPods(newGPUPod("b").withPhase(corev1.PodFailed), newGPUPod("c").withPhase(corev1.PodSucceeded)) // end without being deleted
			w.putPods(newPod("d"))                                                                               // requests no GPU any more
			w.waitForPods("e", "f")
			w.putPods(newGPUPod("e").withPhase(corev1.PodRunning).onNode("n1"))
			w.waitUntil(func() bool { return len(sortedNames(w.store.OnNode("n1"))) == 1 }, func() any { return w.podNames() })
		})
	}
}

func TestPodsSurviveDisconnect(t *testing.T) {
	w := newTestServer(t, Settings{}, newGPUPod("a"), newGPUPod("b")).startStore().waitForSync()
	w.interceptRequests(func(out http.ResponseWriter, _ *http.Request) bool {
		return writeErrorStatus(out, apierrors.NewServiceUnavailable(""))
	})
	w.dropConnections()
	w.putPods(newGPUPod("c"))
	w.deletePod("a")
	before := len(w.podNames())
	w.waitUntil(func() bool { w.mutex.Lock(); defer w.mutex.Unlock(); return len(w.requests) > 6 }, func() any { return w.requests })
	if after := w.podNames(); len(after) != before || !w.store.HasSynced() {
		t.Errorf("while the server was unreachable the pods changed to %v", after)
	}
	w.interceptRequests(nil)
	w.waitForPods("b", "c")
}

func TestTruncatedResponse(t *testing.T) {
	for mode, pages := range listModes {
		t.Run(mode, func(t *testing.T) {
			w := newTestServer(t, Settings{PageSize: 1}, newGPUPod("a"), newGPUPod("b"), newGPUPod("c"))
			w.server.WithoutWatchList = pages
			var n atomic.Int32
			w.interceptRequests(func(out http.ResponseWriter, r *http.Request) bool {
				if pages && isWatch(r) || n.Add(1) > 4 {
					return false
				}
				w.server.ServeHTTP(&truncatingWriter{ResponseWriter: out, remaining: 150 * int(n.Load())}, r)
				return true
			})
			w.startStore().waitForSync().waitForPods("a", "b", "c")
		})
	}
}

// truncatingWriter closes the connection after a number of bytes.
type truncatingWriter struct {
	http.ResponseWriter
	remaining int
}

func (c *truncatingWriter) Write(raw []byte) (int, error) {
	if len(raw) > c.remaining {
		_, _ = c.ResponseWriter.Write(raw[:c.remaining])
		panic(http.ErrAbortHandler)
	}
	c.remaining -= len(raw)
	return c.ResponseWriter.Write(raw)
}

func (c *truncatingWriter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

func TestRelistAfterGone(t *testing.T) {
	for mode, pages := range listModes {
		t.Run(mode, func(t *testing.T) {
			w := newTestServer(t, Settings{}, newGPUPod("a"), newGPUPod("b"))
			w.server.WithoutWatchList = pages
			w.startStore().waitForSync()
			changes := newChangeLog(w)
			w.waitUntil(func() bool { return w.countRequests("watch-list") > 0 }, func() any { return w.requests })
			w.interceptRequests(func(out http.ResponseWriter, r *http.Request) bool {
				return isWatch(r) && r.URL.Query().Get("sendInitialEvents") != "true" && writeErrorStatus(out, apierrors.NewResourceExpired(""))
			})
			w.dropConnections()
			w.deletePod("a")
			w.putPods(newGPUPod("c"))
			w.waitForPods("b", "c")
			w.interceptRequests(nil)
			w.putPods(newGPUPod("d"))
			w.waitForPods("b", "c", "d")
			for _, change := range changes.read() {
				if strings.HasSuffix(change, " b") && change != "new b" {
					t.Errorf("an unchanged pod caused the change: %s", change)
				}
			}
		})
	}
}

func TestExpiredListIsRestarted(t *testing.T) {
	w := newTestServer(t, Settings{PageSize: 1}, newGPUPod("a"), newGPUPod("b"), newGPUPod("c"))
	w.server.WithoutWatchList = true
	var expired atomic.Bool
	w.interceptRequests(func(out http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "" || !expired.CompareAndSwap(false, true) {
			return false
		}
		w.deletePod("a") // a continued list would contain it
		return writeErrorStatus(out, apierrors.NewResourceExpired(""))
	})
	w.startStore().waitForSync().waitForPods("b", "c")
	if w.countRequests("list in one") > 0 {
		t.Error("all pods were requested at once")
	}
}

func TestMalformedResponse(t *testing.T) {
	garbage := map[string]string{
		"text":                  "<html>a proxy's login page</html>",
		"nothing":               "",
		"half an object":        `{"type":"ADDED","object":{"kind":"Pod"`,
		"another kind":          `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}}`,
		"an event of no type":   `{"type":"","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","namespace":"lab"}}}`,
		"a pod without a name":  `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}`,
		"a status for an event": `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
		"null":                  `{"type":"ADDED","object":null}`,
	}
	for name, text := range garbage {
		t.Run(name, func(t *testing.T) {
			w := newTestServer(t, Settings{}, newGPUPod("a"), newGPUPod("b"))
			var n atomic.Int32
			w.interceptRequests(func(out http.ResponseWriter, _ *http.Request) bool {
				if n.Add(1) > 4 {
					return false
				}
				out.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(out, text)
				return true
			})
			w.startStore().waitForSync().waitForPods("a", "b")
		})
	}
}

func TestLargePods(t *testing.T) {
	huge := newGPUPod("huge").withAnnotation("notes", strings.Repeat("x", 1<<20)).withChange(func(p *corev1.Pod) {
		for i := range 2000 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Env: []corev1.EnvVar{{Name: "A", Value: "B"}}})
		}
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 1<<10)}}
	})
	for mode, pages := range listModes {
		t.Run(mode, func(t *testing.T) {
			w := newTestServer(t, Settings{}, newGPUPod("a"), huge)
			w.server.WithoutWatchList = pages
			w.startStore().waitForSync().waitForPods("a", "huge")
			w.putPods(huge.withPhase(corev1.PodRunning))
			w.waitUntil(func() bool {
				p, ok := w.store.ByUID("uid-huge")
				return ok && p.Running && p.Milli == 1000
			}, func() any { return w.podNames() })
		})
	}
}
