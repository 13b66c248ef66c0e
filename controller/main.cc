#include "controller/service/controller_process.h"

int main(int argc, char** argv) { return freshet::RunControllerProcess(argc, argv); }
