// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/shlex"
	"github.com/spf13/pflag"
	"gotest.tools/v3/golden"
	"sigs.k8s.io/yaml"

	"sluice.dev/cmd/sluice/submission"
)

// parse reads a command line as the command does, without the program and the command.
func parse(arguments []string, framework submission.Framework) (*submission.Request, error) {
	set := pflag.NewFlagSet("submit", pflag.ContinueOnError)
	set.SetOutput(new(strings.Builder))
	flags := submission.AddFlags(set)
	if framework != "" {
		flags.AddWorkersFlag()
	}
	set.StringP("project", "p", "", "")
	if err := set.Parse(submission.Prepare(arguments)); err != nil {
		return nil, err
	}
	request, err := flags.Request(set.Args(), set.ArgsLenAtDash(), new(submission.Presets))
	if err == nil && framework != "" {
		request.Framework = framework
	}
	return request, err
}

// render returns the objects of a command line as YAML.
func render(arguments []string, framework submission.Framework) (string, error) {
	request, err := parse(arguments, framework)
	if err != nil {
		return "", err
	}
	return renderRequest(request)
}

// renderRequest returns the objects of a request in a cluster that names all images.
func renderRequest(request *submission.Request) (string, error) {
	request.Images = map[string]string{"git-image": "registry.example.org/tools/git:2.51", "s3-image": "registry.example.org/tools/rclone:1.71"}
	objects, err := submission.Objects(request)
	if err != nil {
		return "", err
	}
	documents := make([]string, len(objects))
	for i, object := range objects {
		raw, err := yaml.Marshal(object.Object)
		if err != nil {
			return "", err
		}
		documents[i] = string(raw)
	}
	return strings.Join(documents, "---\n"), nil
}

// Every command line that Run:ai's documentation shows makes the objects that it describes.
func TestRunAICommandLines(t *testing.T) {
	raw, err := os.ReadFile("testdata/runai-commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		arguments, err := shlex.Split(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		name, framework, rest := "distributed", submission.Framework(""), arguments[2:]
		if arguments[1] == "submit-dist" {
			// The documentation gives no name; a random one cannot be compared.
			framework, rest = submission.Framework(arguments[2]), append([]string{name}, arguments[3:]...)
		} else {
			name = arguments[2]
		}
		t.Run(name, func(t *testing.T) {
			got, err := render(rest, framework)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, "# "+line+got, name+".yaml")
		})
	}
}

// All other flags.
func TestFlags(t *testing.T) {
	for name, line := range map[string]string{
		"inference": "serve -i registry/serve@sha256:0123 --inference --gpu-memory 8G --port 80:8080 --port 9000 --service-type loadbalancer --cpu 4 --memory 64Gi",
		"mig":       "slice -i a --mig-profile 3g.40gb --node-pools dgx-mig,dgx --max-runtime 6h --args one --args --two",
		"volumes": "volumes -i a --pvc data:/data:ro --new-pvc name=scratch,path=/scratch,size=20Gi,storageclass=fast --host-path path=/opt,mount=/opt " +
			"--nfs server=nas,path=/exports,mount=/nfs,readwrite --configmap-file name=settings,file=a.yaml,mount=/etc/a.yaml --secret-file name=keys,mount=/keys",
		"preemptible":   "notebook -i a -g 1 --interactive --preemptible --port 8888 --service-type nodeport -e A=1 -e B= -e A=2=3",
		"array":         "search -i a -g 0.5 --parallelism 2 --completions 6",
		"array-at-once": "search -i a --parallelism 3",
		"host":          "notebook -i a --interactive --port 8888 --service-type ingress --host thesis.h2.example.org",
		"terminal":      "shell -it -i ubuntu --interactive",
		"pytorch":       "ddp -i a -g 2 --pytorch workers=4 -- --epochs 3",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render(strings.Fields(line), "")
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, "# sluice submit "+line+"\n"+got, name+".yaml")
		})
	}
}

// Each fault names the flag, the value and what is allowed, and all faults are reported at once.
func TestRefusedCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"Upper -i a":                           `NAME "Upper": use lower case letters, digits and -, beginning with a letter, at most 50 characters`,
		"n":                                    `--image "": give an image such as python:3.12`,
		"n extra -i a":                         `arguments ["extra"]: give one name; arguments of the command follow -- or --args`,
		"n -i a -g half":                       `--gpu "half": want a whole number of GPUs, or a part of one such as 0.5`,
		"n -i a -g NaN":                        `--gpu "NaN": want a whole number of GPUs, or a part of one such as 0.5`,
		"n -i a -g 1.7":                        "--gpu 1.7: metadata.annotations[sluice.dev/gpu]",
		"n -i a -g 1 --gpu-memory 8G":          "--gpu, --gpu-memory and --mig-profile: give one of them",
		"n -i a --mig-profile 1c.3g.40gb":      "--mig-profile 1c.3g.40gb: ",
		"n -i a --gpu-memory 8":                `--gpu-memory "8": want at least 1Mi, such as 8G`,
		"n -i a --memory 64":                   `--memory "64": want at least 1Mi, such as 64Gi`,
		"n -i a --cpu 1u":                      `--cpu "1u": want at least 1m, such as 4`,
		"n -i a --gpu-memory -8G":              `--gpu-memory "-8G": want a quantity such as 8G`,
		"n -i a --service-type ingress":        "--service-type ingress: needs --port",
		"n -i a --port 1 --service-type dns":   `--service-type "dns": want portforward, nodeport, ingress or loadbalancer`,
		"n -i a --port 1 --host a.example.org": `--host "a.example.org": only with --service-type ingress`,
		"n -i a --port 1 --service-type ingress --host *.example.org":         `--host "*.example.org": want a DNS name in lower case such as notebook.example.org, without * and port`,
		"n -i a --port 1 --service-type ingress --host a.example.org:80":      "want a DNS name in lower case",
		"n -i a --port 1 --service-type ingress --host https://a.example.org": "want a DNS name in lower case",
		"n -i a --port 1 --service-type ingress --host A.example.org":         "want a DNS name in lower case",
		"n -i a --port 1 --service-type ingress --host -a.example.org":        "want a DNS name in lower case",
		"n -i a --port 1 --service-type ingress --host 192.0.2.1":             "want a DNS name in lower case",
		"n -i a --port 1 --service-type ingress --host a..example.org":        "want a DNS name in lower case",
		"n -it":                                               `--image "": give an image such as python:3.12`,
		"n -ti --image=a":                                     `--image "--image=a": give an image such as python:3.12`,
		"n -i a --completions -1":                             "--completions -1: give a number from 1 to 100000",
		"n -i a --parallelism 100001":                         "--parallelism 100001: give a number from 1 to 100000",
		"n -i a --pvc a:/data/../etc":                         `path "/data/../etc": want a folder below /, without ..`,
		"n -i a --port 70000":                                 `--port "70000": want a port from 1 to 65535 such as 8888, or SERVICE:CONTAINER such as 80:8888`,
		"n -i a --port 1 --port 1:2":                          `--port "1:2": port 1 is given twice`,
		"n -i a -e 1X=2":                                      `--environment "1X": want NAME=VALUE, with letters, digits and _ in the name`,
		"n -i a -e SECRET":                                    `--environment "SECRET": want NAME=VALUE`,
		"n -i a --interactive --train":                        "--interactive, --train and --inference: give one of them",
		"n -i a --interactive --completions 3":                "--parallelism and --completions: only for training (--train)",
		"n -i a --inference --preemptible":                    "--preemptible: inference stays within the guaranteed quota and is never preempted",
		"n -i a --inference --pytorch workers=2":              "--pytorch: only for training (--train)",
		"n -i a --pytorch workers=x":                          `--pytorch "workers=x": want workers=N, such as workers=4`,
		"n -i a --pytorch workers=0":                          "--workers 0: give a number from 1 to 1000",
		"n -i a --max-runtime 2weeks":                         `--max-runtime: duration "2weeks"`,
		"n -i a -v /data":                                     `--volume "/data": want /HOST:/CONTAINER, with :ro for read-only`,
		"n -i a -v data:/data":                                `--volume "data:/data": path "data": want an absolute path of the node`,
		"n -i a --pvc data:data":                              `--pvc "data:data": path "data": want an absolute path of the container`,
		"n -i a --pvc Data:/data":                             `--pvc "Data:/data": name "Data": want lower case letters, digits, - and .`,
		"n -i a --pvc a:/data --pvc b:/data/":                 `--pvc "b:/data/": path /data/: it is mounted twice`,
		"n -i a --new-pvc name=a,path=/b":                     `--new-pvc "name=a,path=/b": key "size" is missing; want name=...,path=...,size=...,[storageclass=...],[ro]`,
		"n -i a --new-pvc name=a,path=/b,size=20":             `size: "20": want at least 1Mi, such as 20Gi`,
		"n -i a --new-pvc name=a,path=/b,size=0":              `size: "0": want a quantity such as 20Gi`,
		"n -i a --nfs server=a,server=b":                      `key "server" is given twice`,
		"n -i a --nfs servre=a":                               `key "servre" is unknown; want server=...,path=...,mount=...,[readwrite]`,
		"n -i a --nfs server=a,path=/b,mount=/c,readwrite=no": `"readwrite=no": want server=...`,
		"n -i a --secret-file name=a,file=../b,mount=/c":      `file "../b": want a key of the object`,
		"n -i a --command":                                    "flag needs an argument",
		"n -i a --command --":                                 "--command: give a command",
		"n -i a --command sleep -- 5":                         `--command "sleep": what follows -- is a second command; use --args for its arguments`,
	} {
		t.Run(line, func(t *testing.T) {
			got, err := render(strings.Fields(line), "")
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v\nwant %s\n%s", err, want, got)
			}
		})
	}
}

// Command lines of any bytes make objects or an error.
func FuzzCommandLine(f *testing.F) {
	f.Add("n\x00-i\x00a\x00-g\x000.5\x00--command\x00--\x00a\x00b")
	f.Add("n\x00-i\x00a\x00-e\x00A=hidden-value\x00--new-pvc\x00name=a,path=/b,size=1Gi")
	f.Add("--\x00--command\x00--")
	f.Add("n\x00-it\x00-i\x00a\x00--git-sync\x00source=git@a:b,rev=,branch=-c,target=/a\x00--s3\x00bucket=abc,key=..,url=http://[::1]:9,target=/b")
	f.Fuzz(func(t *testing.T, text string) {
		arguments := strings.Split(text, "\x00")
		if prepared := submission.Prepare(arguments); len(prepared) != len(arguments) {
			t.Errorf("%q becomes %q", arguments, prepared)
		}
		got, err := render(arguments, "")
		if err == nil && got == "" {
			t.Error("neither objects nor an error")
		}
	})
}

// Names without a user's choice are valid whatever the image is called.
func TestNewName(t *testing.T) {
	for _, image := range []string{"python", "gcr.io/a/B_C:v1", "a@sha256:1", "", "123", "registry:5000/team/" + strings.Repeat("x", 300), "ü/ö:1", "a/-:1"} {
		if _, err := render([]string{submission.NewName(image), "-i", "a"}, ""); err != nil {
			t.Errorf("the name for image %q: %v", image, err)
		}
	}
}
