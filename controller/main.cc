#include "controller/controller_process.h"

int main(int argc, char** argv) { return freshet::RunControllerProcess(argc, argv); }
