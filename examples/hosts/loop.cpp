// A time loop in C++, with randsmap.hpp. Prints the last field, 16 hexadecimal digits of its bits a cell.
//
//     c++ -std=c++17 loop.cpp $(randsmap config --cflags --libs) -o loop && ./loop decoder.rsm
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <exception>
#include <randsmap.hpp>

int main(int argc, char **argv)
try {
    if (argc != 2) {
        throw std::invalid_argument("usage: loop decoder.rsm");
    }
    const randsmap::Decoder decoder(argv[1]);
    std::vector<double> z(decoder.n_components(), 0.25), field(decoder.n_cells()), work = decoder.workspace();
    for (int step = 0; step < 256; step++) {
        for (double &coordinate : z) {
            coordinate += 1.0 / 1024; // the reduced model's step
        }
        decoder.decode(z.data(), 1, field.data(), work);
    }
    for (double value : field) {
        std::uint64_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        std::printf("%016" PRIx64 "\n", bits);
    }
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
