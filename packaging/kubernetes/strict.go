// SPDX-License-Identifier: Apache-2.0

// Reads manifests from standard input into the types of Kubernetes' own API, and refuses fields and values that those do not
// have. scripts/check-packaging builds it in a module of its own.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// PodMonitor is no type of Kubernetes, so that it is not here: what has another kind is refused.
var kinds = map[string]func() any{
	"v1/ConfigMap":      func() any { return &corev1.ConfigMap{} },
	"v1/Namespace":      func() any { return &corev1.Namespace{} },
	"v1/ServiceAccount": func() any { return &corev1.ServiceAccount{} },
	"apps/v1/DaemonSet": func() any { return &appsv1.DaemonSet{} },
}

func check(document []byte) (string, error) {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(document, &head); err != nil {
		return "?", err
	}
	name := head.APIVersion + "/" + head.Kind
	make, known := kinds[name]
	if !known {
		return name, fmt.Errorf("no kind that is known here")
	}
	return name, yaml.UnmarshalStrict(document, make())
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status, n := 0, 0
	for _, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		n++
		if name, err := check(document); err != nil {
			fmt.Printf("%s: %v\n", name, err)
			status = 1
		}
	}
	if n == 0 {
		fmt.Println("there is no manifest")
		status = 1
	}
	os.Exit(status)
}
