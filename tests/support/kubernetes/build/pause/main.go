// What holds a pod's namespaces until the pod ends.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGINT, syscall.SIGTERM)
	<-over
}
